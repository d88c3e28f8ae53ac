package main

import (
	"net/url"

	"lockkeeper/internal/webhooks"
)

// webhookAddresses says where webhooks may be delivered to.
func (c *config) webhookAddresses() (*webhooks.Addresses, error) {
	if c.WebhookAllowPrivate && len(c.WebhookAllow) > 0 {
		return nil, usage("leave --webhook-allow out, or leave --webhook-allow-private out and name all networks", "--webhook-allow-private lets everything through, so --webhook-allow says nothing")
	}
	allowed, err := webhooks.NewAddresses(c.WebhookAllowPrivate, c.WebhookAllow)
	if err != nil {
		return nil, usage("for example --webhook-allow 10.1.0.0/16,receiver.internal", "--webhook-allow: %w", err)
	}
	return allowed, nil
}

// webhookProxy is where deliveries go through; nil: straight.
func (c *config) webhookProxy() (*url.URL, error) {
	if c.WebhookProxy == "" {
		return nil, nil
	}
	refuse := func(why string) error {
		// Without the URL itself, which may hold a password.
		return usage("for example --webhook-proxy http://proxy.example.com:3128, or socks5://", "--webhook-proxy %s", why)
	}
	u, err := url.Parse(c.WebhookProxy)
	switch {
	case err != nil || u.Opaque != "" || u.Hostname() == "":
		return nil, refuse("is no URL of a proxy")
	case u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "socks5" && u.Scheme != "socks5h":
		return nil, refuse("begins with http://, https://, socks5:// or socks5h://")
	case u.User != nil:
		return nil, refuse("has a user or a password: settings are printed and seen in process lists; let the proxy know this machine by its address")
	case u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "":
		return nil, refuse("has something behind the host and port")
	}
	return u, nil
}
