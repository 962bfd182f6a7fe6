package lock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// detached is a hold as text. Names and owners are bytes, which JSON doesn't change.
type detached struct {
	Version int           `json:"version"`
	Kind    string        `json:"kind"` // of the lock: plainKind or fencedKind
	Key     string        `json:"key"`  // of the lock
	Name    []byte        `json:"name"`
	Owner   []byte        `json:"owner"`   // in the Lease
	ID      string        `json:"id"`      // the request there
	Holder  []byte        `json:"holder"`  // the owner that the server knows
	Request string        `json:"request"` // that the server knows
	Copied  bool          `json:"copied,omitempty"`
	Lease   time.Duration `json:"lease,omitempty"` // 0: kept by a watchdog
	Holds   int           `json:"holds"`
	Token   int64         `json:"token,omitempty"`
}

const (
	detachedVersion = 1
	plainKind       = "mutex" // a SpinMutex too: it differs in how it waits alone
	fencedKind      = "fenced"
)

// Detach gives a hold away: it returns a text with which [Client.Attach] makes it a hold
// of another client, or of another process. This one then ends as with [Hold.Release],
// but for the lock, which stays held until its lease ends or is extended by the client
// that attaches it. No watchdog renews it until then. [ErrNotHeld] says that the hold was
// over before.
//
// The text is as good as the hold, and a process that reads it may release the lock. Give it to one
// process: two that attach it hold the lock together.
//
// Holds of a [Mutex], [FencedMutex] and [SpinMutex] can be detached. For all others the
// error is [errors.ErrUnsupported], and the hold stays as it is.
func (h *Hold) Detach(ctx context.Context) (string, error) {
	g, ok := h.keeper.(*grant)
	if !ok || !g.kind.usesMutexScripts {
		return "", fmt.Errorf("detach lock %q: %w: only holds of a Mutex, FencedMutex or SpinMutex can be detached", h.lease.Name, errors.ErrUnsupported)
	}
	if err := h.take(ctx); err != nil { // no renewal is under way then
		return "", fmt.Errorf("detach lock %q: %w", h.lease.Name, err)
	}
	defer h.give()
	h.mu.Lock()
	l := h.lease
	if h.isOver() || !time.Now().Before(l.Expires) {
		h.mu.Unlock()
		return "", fmt.Errorf("detach lock %q: %w", l.Name, ErrNotHeld)
	}
	h.gone = true
	h.mu.Unlock()
	h.beginEnd()
	g.client.queues.leave(g)
	g.client.tell(ctx, Detached, l, 0, nil)
	return g.asText(l)
}

// Attach makes a hold of what [Hold.Detach] returned. It extends the lease, so that the
// server confirms that the lock is still held by that grant, and returns [ErrNotHeld] if
// it is not. After any other error the text may be attached once more.
//
// The client has the [Config.Prefix] of the one that detached the hold. A hold that was
// kept by a watchdog is kept by that of this client.
func (c *Client) Attach(ctx context.Context, text string) (*Hold, error) {
	begin := time.Now()
	g, d, err := c.attached(text)
	if err == nil && !c.enter() {
		err = ErrClosed
	}
	if err != nil {
		return nil, fmt.Errorf("attach a hold: %w", err)
	}
	defer c.tasks.Done()
	sent := time.Now()
	err = g.extend(ctx, g.lease)
	expires := c.expires(sent, g.lease)
	if err == nil && !time.Now().Before(expires) {
		err = errTooLate
	}
	if err != nil {
		return nil, fmt.Errorf("attach lock %q: %w", g.name, err)
	}
	return g.makeHold(ctx, answer{granted: true, holds: d.Holds, token: d.Token, expires: expires}, begin), nil
}

// attached reads what a hold was detached as.
func (c *Client) attached(text string) (*grant, detached, error) {
	var d detached
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		return nil, d, fmt.Errorf("the text is not that of a detached hold: %w", err)
	}
	k := map[string]*kind{plainKind: kinds.mutex, fencedKind: kinds.fenced}[d.Kind]
	switch {
	case d.Version != detachedVersion:
		return nil, d, fmt.Errorf("the text has version %d, and must have %d", d.Version, detachedVersion)
	case k == nil:
		return nil, d, fmt.Errorf("the text is of a lock of kind %q, and must be of a %q or %q", d.Kind, plainKind, fencedKind)
	case d.Request == "" || strings.ContainsAny(d.Request, " \t\r\n"):
		return nil, d, errors.New("the text names no request")
	}
	o := c.object(string(d.Name), k)
	if err := o.check(Options{Lease: d.Lease}); err != nil {
		return nil, d, err
	}
	if d.Key != o.keys.lock {
		return nil, d, fmt.Errorf("the lock is %s, and that of this client would be %s: use a client with the same Config.Prefix", d.Key, o.keys.lock)
	}
	g := o.grant(Options{Owner: string(d.Holder), Lease: d.Lease})
	g.request, g.copied, g.id, g.named, g.anonymous = d.Request, d.Copied, d.ID, string(d.Owner), false
	g.late = g.copied // perhaps
	return g, d, nil
}

// asText is what the hold with that lease is detached as.
func (g *grant) asText(l Lease) (string, error) {
	d := detached{
		Version: detachedVersion, Kind: plainKind, Key: g.keys.lock, Name: []byte(g.name), Owner: []byte(g.named), ID: g.id,
		Holder: []byte(g.owner), Request: g.request, Copied: g.copied, Holds: l.Holds, Token: l.Token,
	}
	if g.kind.fenced {
		d.Kind = fencedKind
	}
	if !g.watched {
		d.Lease = g.lease
	}
	b, err := json.Marshal(d)
	return string(b), wrap(err, "detach lock %q", g.name)
}
