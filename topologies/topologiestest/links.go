package topologiestest

import (
	"context"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/topologies"
)

const (
	// answer is how long a link that works may take to answer.
	answer = 10 * time.Second
	// silence is how long a link has to stay silent to count as held.
	silence = 30 * time.Millisecond
	// delay is what a link is slowed by.
	delay = 40 * time.Millisecond
)

// links checks the faults of links: that each is there, and gone once it was mended. To mend twice does nothing.
func (s suite) links() {
	refuses := func(_ time.Duration, err error) bool { return err != nil && !silent(err) }
	late := func(took time.Duration, err error) bool { return err == nil && took >= delay }
	sampled := map[topologies.LinkKind]bool{}
	for _, l := range s.d.Topology().Links {
		w := s.d.Proxy(l.Name())
		s.shows(w, "cut", answer, refuses, func() (func(), error) { return w.Cut(), nil })
		if sampled[l.Kind] {
			continue
		}
		sampled[l.Kind] = true
		for _, stream := range []topologies.Stream{topologies.Upstream, topologies.Downstream, topologies.Both} {
			s.shows(w, "held "+stream, silence, func(_ time.Duration, err error) bool { return silent(err) }, func() (func(), error) { return w.Put(stream, topologies.Hold()) })
			s.shows(w, "slow "+stream, answer, late, func() (func(), error) { return w.Put(stream, topologies.Latency(delay, 0)) })
		}
	}
	s.zones()
}

// shows puts a fault on a link that works, looks at a probe of it, and mends the link.
func (s suite) shows(w topologies.Proxy, fault string, within time.Duration, seen func(took time.Duration, err error) bool, put func() (mend func(), err error)) {
	s.t.Helper()
	probe := func(limit time.Duration) (time.Duration, error) {
		ctx, cancel := context.WithTimeout(s.t.Context(), limit)
		defer cancel()
		return w.Probe(ctx)
	}
	works := func() {
		s.await(w.Name()+" to answer", func(context.Context) error { // it may refuse for a moment, when the server behind it just came back
			_, err := probe(answer)
			return err
		})
	}
	works()
	mend, err := put()
	require.NoError(s.t, err)
	took, err := probe(within)
	assert.True(s.t, seen(took, err), "%s is %s, and a probe took %v: %v", w.Name(), fault, took, err)
	mend()
	mend()
	works()
}

// zones checks that a zone that is cut off knows it, and leaves the others
// alone.
func (s suite) zones() {
	s.t.Helper()
	zones := s.d.Topology().Of(topologies.Zone)
	links, err := s.d.Topology().Select(zones[0])
	require.NoError(s.t, err)
	inside, outside := s.client(zones[0]), s.client(zones[1])
	ping := func(ctx context.Context) error { return inside[0].Set(ctx, "k", "v", time.Minute).Err() }
	s.await(zones[0]+" to write", ping)
	for _, l := range links {
		defer s.d.Proxy(l.Name()).Cut()()
	}
	assert.Error(s.t, ping(s.t.Context()), "%s is cut off, and writes", zones[0])
	for _, c := range outside {
		s.await(zones[1]+" to write", func(ctx context.Context) error { return c.Set(ctx, "k", "v", time.Minute).Err() })
	}
}
