package topologiestest

import (
	"context"
	"time"

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

// links checks the faults of links.
func (s suite) links() {
	sampled := map[topologies.LinkKind]bool{}
	for _, l := range s.d.Topology().Links {
		w := s.d.Proxy(l.Name())
		s.cut(w)
		if sampled[l.Kind] {
			continue
		}
		sampled[l.Kind] = true
		for _, stream := range []topologies.Stream{topologies.Upstream, topologies.Downstream, topologies.Both} {
			s.hold(w, stream)
			s.delay(w, stream)
		}
		if _, err := w.Hold("sideways"); err == nil {
			s.t.Errorf("%s has an unknown stream", l.Name())
		}
	}
	s.zones()
}

func (s suite) probe(w topologies.Proxy, limit time.Duration) (time.Duration, error) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), limit)
	defer cancel()
	return w.Probe(ctx)
}

// works waits until a link answers. It may refuse for a moment, when the
// server behind it just came back.
func (s suite) works(w topologies.Proxy) {
	s.t.Helper()
	s.await(w.Name()+" to answer", func(context.Context) error {
		_, err := s.probe(w, answer)
		return err
	})
}

func (s suite) cut(w topologies.Proxy) {
	s.t.Helper()
	s.works(w)
	mend := w.Cut()
	again := w.Cut()
	for range 2 {
		if _, err := s.probe(w, answer); err == nil {
			s.t.Errorf("%s is cut, and answers", w.Name())
		} else if silent(err) {
			s.t.Errorf("%s is cut, and does not refuse: %v", w.Name(), err)
		}
		mend()
		mend() // a second time does nothing
	}
	again()
	s.works(w)
}

func (s suite) hold(w topologies.Proxy, stream topologies.Stream) {
	s.t.Helper()
	mend, err := w.Hold(stream)
	if err != nil {
		s.t.Fatalf("hold %s: %v", w.Name(), err)
	}
	if _, err := s.probe(w, silence); !silent(err) {
		s.t.Errorf("%s is held %s, and not silent: %v", w.Name(), stream, err)
	}
	mend()
	s.works(w)
}

func (s suite) delay(w topologies.Proxy, stream topologies.Stream) {
	s.t.Helper()
	mend, err := w.Delay(stream, delay, 0)
	if err != nil {
		s.t.Fatalf("delay %s: %v", w.Name(), err)
	}
	var took time.Duration
	s.await(w.Name()+" to answer late", func(context.Context) (err error) {
		took, err = s.probe(w, answer)
		return err
	})
	if took < delay {
		s.t.Errorf("%s is slower by %v %s, and answers after %v", w.Name(), delay, stream, took)
	}
	mend()
	s.works(w)
}

// zones checks that a zone that is cut off knows it, and leaves the others
// alone.
func (s suite) zones() {
	s.t.Helper()
	zones := s.d.Topology().Of(topologies.Zone)
	links, err := s.d.Topology().Select(zones[0])
	if err != nil {
		s.t.Fatal(err)
	}
	inside, outside := s.client(zones[0]), s.client(zones[1])
	ping := func(ctx context.Context) error { return inside[0].Set(ctx, "k", "v", time.Minute).Err() }
	s.await(zones[0]+" to write", ping)
	for _, l := range links {
		defer s.d.Proxy(l.Name()).Cut()()
	}
	if err := ping(s.t.Context()); err == nil {
		s.t.Errorf("%s is cut off, and writes", zones[0])
	}
	for _, c := range outside {
		s.await(zones[1]+" to write", func(ctx context.Context) error { return c.Set(ctx, "k", "v", time.Minute).Err() })
	}
}
