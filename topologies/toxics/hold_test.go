package toxics_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/Shopify/toxiproxy/v2/stream"
	upstream "github.com/Shopify/toxiproxy/v2/toxics"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/toxics"
)

// A hold passes on all that it kept, in order, and then the end, whether it is opened or removed.
func TestAHoldPassesOnWhatItKept(t *testing.T) {
	t.Parallel()
	for name, mend := range map[string]func(*toxics.Hold, *upstream.ToxicStub){
		"opened":  func(h *toxics.Hold, _ *upstream.ToxicStub) { h.Open() },
		"removed": func(h *toxics.Hold, s *upstream.ToxicStub) { s.InterruptToxic(); h.Cleanup(s) },
	} {
		w := &upstream.ToxicWrapper{Type: topologies.TypeHold, Toxicity: 1}
		require.NotNil(t, upstream.New(w), "it is registered")
		h := w.Toxic.(*toxics.Hold)
		in, out := make(chan *stream.StreamChunk), make(chan *stream.StreamChunk)
		stub := upstream.NewToxicStub(in, out)
		stub.State = h.NewState()
		go stub.Run(w)
		in <- &stream.StreamChunk{Data: []byte("one")}
		stub.InterruptToxic() // as it is when a neighbour comes or goes
		go stub.Run(w)
		in <- &stream.StreamChunk{Data: []byte("two")}
		close(in)
		select {
		case c := <-out:
			t.Fatalf("%s: it passed on %q", name, c.Data)
		case <-time.After(10 * time.Millisecond): // that nothing comes has no event
		}
		go mend(h, stub)
		for _, want := range []string{"one", "two"} {
			require.Equal(t, want, string((<-out).Data), name)
		}
		_, more := <-out
		require.False(t, more, name)
	}
}

// Where the peer takes nothing, the stream ends: a part that is missing would be read as another.
func TestAHoldWhosePeerTakesNothingEndsTheStream(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &upstream.ToxicWrapper{Type: topologies.TypeHold, Toxicity: 1}
		upstream.New(w)
		h := w.Toxic.(*toxics.Hold)
		in, out := make(chan *stream.StreamChunk), make(chan *stream.StreamChunk)
		stub := upstream.NewToxicStub(in, out)
		stub.State = h.NewState()
		go stub.Run(w)
		in <- &stream.StreamChunk{Data: []byte("one")}
		in <- &stream.StreamChunk{Data: []byte("two")}
		require.True(t, stub.InterruptToxic())
		begin := time.Now()
		h.Cleanup(stub)
		require.Equal(t, 4*time.Second, time.Since(begin), "it waits once")
		require.True(t, stub.Closed())
	})
}
