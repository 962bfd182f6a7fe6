package wakeup

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/lock/internal/require"
)

// A message wakes one waiter; if that one is leaving, the next.
func TestWakeUpIsPassedOn(t *testing.T) {
	tests := []struct {
		name string
		read bool // the first waiter has taken its wake-up
		used bool // and its try was answered
		want bool // the second is woken
	}{
		{"not taken", false, false, true},
		{"taken, not used", true, false, true},
		{"used", true, true, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			u := New(nil, "inbox", func(func()) {}, nil)
			first, second := u.Join("c", ""), u.Join("c", "")
			u.receive(&redis.Message{Channel: "c", Payload: "1"})
			require.Len(t, first.Wake, 1)
			require.Len(t, second.Wake, 0)
			if tt.read {
				<-first.Wake
			}
			u.Leave(first, tt.read && !tt.used)
			require.Equal(t, tt.want, len(second.Wake) == 1)
			u.Leave(second, false)
		})
	}
}

func TestSubscriptionWakesAllWaiters(t *testing.T) {
	u := New(nil, "inbox", func(func()) {}, nil)
	first, second := u.Join("c", ""), u.Join("c", "")
	u.topics["c"].asked = true
	for range 2 { // the second time after a broken connection
		u.receive(&redis.Subscription{Kind: "subscribe", Channel: "c"})
		for _, w := range []*Waiter{first, second} {
			require.Len(t, w.Wake, 1)
			<-w.Wake
		}
	}
	third := u.Join("c", "")
	require.Len(t, third.Wake, 1, "it may have missed a message before it joined")
}

// No messages come by a Redis client that was closed: the goroutine that awaits them ends.
func TestEndsWithTheRedisClient(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{})
	require.NoError(t, rdb.Close())
	ended := make(chan struct{})
	u := New(rdb, "inbox", func(f func()) {
		go func() {
			defer close(ended)
			f()
		}()
	}, nil)
	u.Join("c", "")
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Fatal("it has not ended")
	}
}
