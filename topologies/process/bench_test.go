package process_test

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/internal/runtest"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/process"
)

// BenchmarkBoot measures how long each topology takes to be ready and to be
// gone, and the memory of its servers, sentinels included.
func BenchmarkBoot(b *testing.B) {
	runtest.NeedStore(b, topologies.StoreRedis)
	for _, name := range topologies.Names() {
		b.Run(name, func(b *testing.B) {
			topology, err := topologies.ByName(name)
			if err != nil {
				b.Fatal(err)
			}
			var boot, teardown time.Duration
			var memory int
			rounds := 0
			for b.Loop() {
				begin := time.Now()
				d, err := process.Backend{}.Start(b.Context(), topology)
				if err != nil {
					b.Fatal(err)
				}
				boot += time.Since(begin)
				memory = residentBytes(b, d)
				begin = time.Now()
				if err := d.Close(); err != nil {
					b.Fatal(err)
				}
				teardown += time.Since(begin)
				rounds++
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(boot.Seconds()*1000/float64(rounds), "ms-boot")
			b.ReportMetric(teardown.Seconds()*1000/float64(rounds), "ms-teardown")
			b.ReportMetric(float64(memory)/(1<<20), "MiB-RSS")
		})
	}
}

// residentBytes is the memory of all servers, pages that they share counted for
// each.
func residentBytes(b *testing.B, d topologies.Deployment) int {
	b.Helper()
	total := 0
	for _, n := range d.Topology().Nodes {
		s := d.Server(n.Name)
		if s == nil {
			continue
		}
		info, err := s.Observer().InfoMap(b.Context(), "server").Result()
		if err != nil {
			b.Fatal(err)
		}
		statm, err := os.ReadFile("/proc/" + info["Server"]["process_id"] + "/statm")
		if err != nil {
			b.Fatal(err)
		}
		pages, err := strconv.Atoi(strings.Fields(string(statm))[1]) // the second is the resident set
		if err != nil {
			b.Fatal(err)
		}
		total += pages * os.Getpagesize()
	}
	return total
}

// BenchmarkLink measures a PING past the links and through one.
func BenchmarkLink(b *testing.B) {
	runtest.NeedStore(b, topologies.StoreRedis)
	topology, err := topologies.ByName("single")
	if err != nil {
		b.Fatal(err)
	}
	d, err := process.Backend{}.Start(b.Context(), topology)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := d.Close(); err != nil {
			b.Error(err)
		}
	})
	proxied := topologies.Clients(d.ClientOptions("zone-a"))[0]
	b.Cleanup(func() { _ = proxied.Close() })
	for name, c := range map[string]redis.UniversalClient{"direct": d.Server("redis-1").Observer(), "proxied": proxied} {
		b.Run(name, func(b *testing.B) {
			var took []time.Duration
			for b.Loop() {
				begin := time.Now()
				if err := c.Ping(b.Context()).Err(); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(begin))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "µs-p50")
		})
	}
}
