// Package fleetlock is the FleetLock protocol, by which machines ask before they reboot
// (https://coreos.github.io/zincati/development/fleetlock/protocol/): what its requests and refusals say. It is pure.
package fleetlock

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"unicode"
)

// Header is the header that each request must have, with the value true.
const Header = "Fleet-Lock-Protocol"

// Full is the kind of the refusal when all slots are taken.
const Full = "failed_lock_semaphore_full"

// Bounds of what a client says.
const (
	MaxID    = 256 // bytes
	MaxGroup = 128
)

// LockPrefix begins the names of the groups' locks.
const LockPrefix = "fleetlock:"

// Client is the machine that asks.
type Client struct {
	ID    string `json:"id"`
	Group string `json:"group"`
}

// Wrong is what is wrong with a request, and where.
type Wrong struct{ Field, Detail string }

func (w *Wrong) Error() string { return w.Field + ": " + w.Detail }

var groups = regexp.MustCompile(`^[a-zA-Z0-9.-]+$`) // of the protocol

// Read reads the body of a request. Its error is a *Wrong. Members that the protocol does not have are left alone: a later
// version may add some.
func Read(body []byte) (Client, error) {
	var message struct {
		Client *Client `json:"client_params"`
	}
	if err := json.Unmarshal(body, &message); err != nil {
		return Client{}, &Wrong{"", `the body must be JSON, as {"client_params": {"id": "...", "group": "default"}}`}
	}
	c := message.Client
	switch {
	case c == nil:
		return Client{}, &Wrong{"client_params", "client_params must be an object with id and group"}
	case c.ID == "" || len(c.ID) > MaxID || strings.ContainsFunc(c.ID, unicode.IsControl):
		return Client{}, &Wrong{"client_params.id", fmt.Sprintf("id must have 1 to %d bytes, and no control characters", MaxID)}
	case len(c.Group) > MaxGroup || !groups.MatchString(c.Group):
		return Client{}, &Wrong{"client_params.group", fmt.Sprintf("group must have 1 to %d of A-Z a-z 0-9 . -", MaxGroup)}
	}
	return *c, nil
}

// Lock is the semaphore of the client's group.
func (c Client) Lock() string { return LockPrefix + c.Group }

// Mark is the metadata of the client's leases. It tells them from those of other clients, by all bytes of the id.
func (c Client) Mark() string {
	text, err := json.Marshal(map[string]Client{"client_params": c})
	if err != nil {
		panic(err) // two strings
	}
	return string(text)
}
