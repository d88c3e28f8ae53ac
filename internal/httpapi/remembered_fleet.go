package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"lockkeeper/internal/fleet"
	"lockkeeper/internal/history"
	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/locks"
)

// OtherHistories are the other gateways, from which a gap of the history may be filled.
func (s *Server) OtherHistories() (list []history.Source) {
	if s.forwarder.fleet == nil {
		return nil
	}
	for _, p := range s.locks.Peers() {
		if p.Registered && !p.Self && p.Address != "" {
			list = append(list, history.Source{Gateway: p.Gateway, Ask: func(ctx context.Context, q history.Query) (history.Answer, error) { return s.historyOf(ctx, &p, &q) }})
		}
	}
	return list
}

// historyOf asks another gateway for what it remembers of a time.
func (s *Server) historyOf(ctx context.Context, p *locks.Peer, q *history.Query) (a history.Answer, err error) {
	asked := url.Values{"kind": {"all"}, "from": {q.From.UTC().Format(time.RFC3339Nano)}, "to": {q.To.UTC().Format(time.RFC3339Nano)}, "limit": {fmt.Sprint(q.Limit)}}
	if q.Cursor != "" {
		asked.Set("cursor", q.Cursor)
	}
	by := s.forPage()
	answer, err := s.forwarder.fleet.Send(ctx, &fleet.Request{Address: p.Address, Seals: p.Seals, Method: http.MethodGet, URI: "/v1/history?" + asked.Encode(), Timeout: 2 * askTimeout, Seal: by.sealFor(p.Gateway)})
	if err != nil {
		return a, err
	}
	if answer.Status != http.StatusOK {
		return a, fmt.Errorf("it answers %d %s", answer.Status, problemIn(answer))
	}
	var list api.HistoryList
	if err := json.Unmarshal(answer.Body, &list); err != nil {
		return a, err
	}
	if a.Since, err = time.Parse(eventTime, list.Since); err != nil {
		return a, err
	}
	a.Next, a.Complete = list.NextCursor, list.Complete
	for i := range list.Gaps {
		from, err := time.Parse(eventTime, list.Gaps[i].From)
		if err != nil {
			return a, err
		}
		to, err := time.Parse(eventTime, list.Gaps[i].To)
		if err != nil {
			return a, err
		}
		a.Gaps = append(a.Gaps, history.Gap{From: from, To: to, Cause: string(list.Gaps[i].Cause)})
	}
	for i := range list.Items {
		item, err := historyItem(&list.Items[i])
		if err != nil {
			return a, err
		}
		a.Items = append(a.Items, item)
	}
	return a, nil
}

// historyItem is what historyShape was made of.
func historyItem(s *api.HistoryItem) (i history.Item, err error) {
	i = history.Item{Kind: history.KindNamed(string(s.Kind)), NS: s.NS, Lock: s.Lock, LeaseID: s.LeaseID, Name: s.Contender, Owner: s.Owner, Principal: s.Principal, Gateway: s.Gateway,
		Purpose: s.AcquireReason, Mode: locks.Mode(s.Mode), Permits: s.Permits, FencingToken: s.FencingToken, Reason: locks.Reason(s.Reason), By: s.By, Detail: s.Detail, Count: s.Count,
		Code: string(s.Code), Programs: s.Programs}
	if i.Kind == 0 {
		return i, fmt.Errorf("there is no kind %q", s.Kind)
	}
	if s.Foreign != nil {
		i.Foreign, i.Program = true, s.Foreign.Program
	}
	if i.Kind == history.Deadlock {
		i.Code = s.Cycle
	}
	if s.WaitedMS != nil {
		i.Waited, i.WaitedKnown = time.Duration(*s.WaitedMS)*time.Millisecond, true
	}
	if i.Kind == history.Many && s.LastedMS != nil {
		i.Mean = time.Duration(*s.LastedMS) * time.Millisecond
	}
	var early, late time.Time
	for _, at := range []struct { // two of them may be the same: a hold that began and ended in one moment
		text string
		to   *time.Time
	}{{s.BeganAt, &i.Begin}, {s.BeganAfter, &early}, {s.EndedAt, &i.End}, {s.EndedAfter, &late}} {
		if at.text == "" {
			continue
		}
		if *at.to, err = time.Parse(eventTime, at.text); err != nil {
			return i, err
		}
	}
	if !early.IsZero() {
		i.Early = i.Begin.Sub(early)
	}
	if !late.IsZero() {
		i.Late = i.End.Sub(late)
	}
	return i, nil
}
