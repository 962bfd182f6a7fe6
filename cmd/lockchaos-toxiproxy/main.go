// Command lockchaos-toxiproxy is a toxiproxy server that knows the toxics of lockchaos beside its own: lockchaos run --backend
// attach --toxiproxy uses them where they are, and any other client may. It takes the flags of toxiproxy-server that
// lockchaos needs.
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"

	_ "github.com/lockchaos/lockchaos/topologies/toxics" // which it knows by their names
)

func main() {
	host := flag.String("host", "localhost", "the host on which the API listens")
	port := flag.String("port", "8474", "the port on which the API listens")
	config := flag.String("config", "", "a JSON file with the proxies to begin with")
	version := flag.Bool("version", false, "print the version of toxiproxy")
	flag.Parse()
	if *version {
		fmt.Printf("toxiproxy-server version %s\n", toxiproxy.Version)
		return
	}
	log := zerolog.New(os.Stdout).Level(zerolog.InfoLevel).With().Timestamp().Logger()
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), log)
	if *config != "" {
		if err := populate(server, *config); err != nil {
			fmt.Fprintln(os.Stderr, "lockchaos-toxiproxy: -config:", err)
			os.Exit(1)
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	failed := make(chan error, 1)
	go func() { failed <- server.Listen(net.JoinHostPort(*host, *port)) }()
	select {
	case <-ctx.Done():
		_ = server.Shutdown() // the process ends anyway
	case err := <-failed:
		fmt.Fprintln(os.Stderr, "lockchaos-toxiproxy:", err)
		stop()
		os.Exit(1) //nolint:gocritic // stop was called
	}
}

// populate makes the proxies of a file.
func populate(server *toxiproxy.ApiServer, file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = server.Collection.PopulateJson(server, f)
	return err
}
