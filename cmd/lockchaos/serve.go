package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockchaos/lockchaos/reports"
)

// serveTimeout bounds reading a request, and the wait for the last answers at
// the end.
const serveTimeout = 5 * time.Second

func (a *app) serveCommand() *cobra.Command {
	var port uint16
	cmd := &cobra.Command{
		Use:   "serve [DIR]",
		Short: "Show stored runs, and the run that is under way, in a browser",
		Long: `Show the runs in a folder (default ` + runsDir + `) in a browser on this machine:
the index, which updates itself, every report, and the record so far of a run that
is under way. It listens on 127.0.0.1 only, until Ctrl-C.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := runsDir
			if len(args) > 0 {
				dir = args[0]
			}
			return a.serve(cmd.Context(), dir, port)
		},
	}
	cmd.Flags().Uint16Var(&port, "port", 8080, "the port on 127.0.0.1; 0: a free port")
	return cmd
}

// serve answers until ctx ends.
func (a *app) serve(ctx context.Context, dir string, port uint16) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	defer root.Close()
	if _, err := root.Lstat(reports.RunFile); err == nil {
		return fmt.Errorf("%s is a run directory: serve the folder that it is in", dir)
	}
	var listen net.ListenConfig
	l, err := listen.Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
	if err != nil {
		return fmt.Errorf("serve: %w (--port chooses another)", err)
	}
	server := &http.Server{
		Handler:           reports.NewHandler(root),
		ReadHeaderTimeout: serveTimeout, ReadTimeout: serveTimeout, WriteTimeout: time.Minute, IdleTimeout: time.Minute,
		MaxHeaderBytes: 16 << 10, BaseContext: func(net.Listener) context.Context { return ctx },
	}
	stopped := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), serveTimeout)
		defer cancel()
		stopped <- errors.Join(server.Shutdown(last), server.Close())
	})
	defer stop()
	a.printf("http://%s/\n", l.Addr())
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return harnessError{fmt.Errorf("serve: %w", err)}
	}
	return asHarness(<-stopped)
}
