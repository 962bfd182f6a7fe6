package lock_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/redistest"
	"github.com/redis/go-redis/v9"
)

func BenchmarkZZ(b *testing.B) {
	s := redistest.Start(b)
	rdb := redis.NewClient(&redis.Options{Addr: s.Client(b, nil).Options().Addr, PoolSize: 64, MaxRetries: -1, ContextTimeoutEnabled: true})
	c, _ := lock.New(rdb, lock.Config{})
	defer c.Close()
	b.ReportAllocs()
	b.ResetTimer()
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			name := fmt.Sprint("k", i)
			for range b.N / 16 {
				ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
				h, err := c.Acquire(ctx, name, lock.Options{Lease: 10 * time.Second})
				if err != nil {
					panic(err)
				}
				h.Release(ctx)
				cancel()
			}
		})
	}
	wg.Wait()
}
