package main

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// contenderView is what lockctl shows of a holder or a waiter.
type contenderView struct {
	LeaseID string `json:"lease_id"`
	Foreign *struct {
		Program string `json:"program"`
		Kind    string `json:"kind"`
		Session string `json:"session"`
		Decoded *struct {
			Address     string `json:"address"`
			Participant string `json:"participant"`
			Identifier  string `json:"identifier"`
		} `json:"decoded"`
	} `json:"foreign"`
	Znode           string `json:"znode"`
	Owner           string `json:"owner"`
	Principal       string `json:"principal"`
	Mode            string `json:"mode"`
	Permits         int    `json:"permits"`
	Position        int    `json:"position"`
	Fence           uint64 `json:"fencing_token"`
	Age             int64  `json:"age_ms"`
	Expires         *int64 `json:"expires_in_ms"`
	LastHeartbeat   *int64 `json:"last_heartbeat_ms"`
	Held            int64  `json:"held_ms"`
	HeldLonger      bool   `json:"held_longer"`
	HeldAtMost      int64  `json:"held_at_most_ms"`
	Unclaimed       bool   `json:"unclaimed"`
	Delayed         bool   `json:"delayed"`
	Ephemeral       bool   `json:"ephemeral"`
	Metadata        string `json:"metadata"`
	Reason          string `json:"acquire_reason"`
	EndsAt          string `json:"ends_at"`
	RevokeRequested *struct {
		Reason string `json:"reason"`
		By     string `json:"by"`
		Force  *int64 `json:"force_in_ms"`
	} `json:"revoke_requested"`
}

// name is who it is, for people.
func (c *contenderView) name() string {
	if c.Foreign == nil {
		return cmp.Or(c.Owner, c.Principal, c.LeaseID)
	}
	who := cmp.Or(c.Foreign.Program, "another program")
	if d := c.Foreign.Decoded; d != nil {
		if from := cmp.Or(d.Identifier, d.Participant, d.Address); from != "" {
			who += " " + from
		}
	}
	return who
}

func (c *contenderView) fence() string {
	if c.Fence == 0 {
		return ""
	}
	return strconv.FormatUint(c.Fence, 10)
}

func (c *contenderView) held() string {
	if c.Held == 0 {
		return ""
	}
	switch {
	case c.HeldLonger && c.HeldAtMost > 0:
		return span(c.Held) + " to " + span(c.HeldAtMost)
	case c.HeldLonger:
		return ">" + span(c.Held)
	}
	return span(c.Held)
}

func (c *contenderView) expires() string {
	if c.Expires == nil {
		return ""
	}
	return span(*c.Expires)
}

// heartbeat is how long ago the last one was; "" when that is not known.
func (c *contenderView) heartbeat() string {
	if c.LastHeartbeat == nil {
		return ""
	}
	return span(*c.LastHeartbeat) + " ago"
}

// notes are what a person should know besides.
func (c *contenderView) notes() (notes []string) {
	if c.Foreign != nil {
		notes = append(notes, strings.TrimSpace("foreign "+c.Foreign.Kind))
	}
	if c.Reason != "" {
		notes = append(notes, "for "+c.Reason)
	}
	if at, err := time.Parse(time.RFC3339, c.EndsAt); err == nil {
		notes = append(notes, "reserved until "+at.Local().Format("2006-01-02 15:04"))
	}
	if r := c.RevokeRequested; r != nil {
		note := "asked to release"
		if r.By != "" {
			note += " by " + r.By
		}
		if r.Force != nil {
			note += ", ends in " + span(*r.Force)
		}
		if r.Reason != "" {
			note += ": " + r.Reason
		}
		notes = append(notes, note)
	}
	if c.Unclaimed {
		notes = append(notes, "unclaimed")
	}
	if c.Delayed {
		notes = append(notes, "ended, its lock delay runs")
	}
	if c.Ephemeral {
		notes = append(notes, "ends with its gateway")
	}
	return notes
}

// row is a lock in the list.
func (l *lockView) row() []string {
	var owner, fence, held, expires string
	if len(l.Holders) > 0 {
		first := &l.Holders[0]
		owner, fence, held, expires = first.name(), first.fence(), first.held(), first.expires()
	}
	if n := max(l.HolderCount, len(l.Holders)); n > 1 {
		owner += fmt.Sprintf(" and %d more", n-1)
	}
	var notes []string
	for _, h := range l.Hazards {
		notes = append(notes, "hazard "+h.Code)
	}
	for i := range l.Holders {
		for _, n := range l.Holders[i].notes() {
			if len(notes) < 3 {
				notes = append(notes, n)
			}
		}
	}
	if l.Settings != nil {
		notes = append(notes, fmt.Sprintf("limit %d", l.Settings.Limit))
	}
	return []string{l.Lock, l.State, owner, fence, held, expires, strconv.Itoa(l.QueueLength), strings.Join(notes, "; ")}
}

// span is a time in two units at most: 1h2m, 3m20s, 4.2s, 120ms.
func span(ms int64) string {
	d := time.Duration(ms) * time.Millisecond
	switch {
	case d < time.Second:
		return d.String()
	case d < 10*time.Second:
		return d.Truncate(100 * time.Millisecond).String()
	case d < time.Hour:
		return d.Truncate(time.Second).String()
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%dh", int(d.Hours())/24, int(d.Hours())%24)
}

// what names it where it can be ended: the lease's id, or the last part of its znode.
func (c *contenderView) what() string {
	if c.LeaseID != "" {
		return c.LeaseID
	}
	return c.Znode[strings.LastIndexByte(c.Znode, '/')+1:]
}

// mode says what it takes of the lock.
func (c *contenderView) mode() string {
	if c.Permits > 0 {
		return fmt.Sprintf("%d permits", c.Permits)
	}
	return c.Mode
}
