package redis

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/faults"
)

// A Server is what a fault needs of one. Its Observer is a connection past
// every fault of the network.
type Server interface {
	Name() string
	Observer() *redis.Client
}

// fault is a fault of a server.
type fault struct {
	name   string
	server Server
	// inject makes it happen and says what was observed.
	inject func(ctx context.Context, rdb *redis.Client) (effect string, err error)
	// heal ends it, even if it was only half begun. Nil: it has no duration.
	heal func(ctx context.Context, rdb *redis.Client) (effect string, err error)
}

// Name returns the fault's name.
func (f *fault) Name() string { return f.name }

// Inject makes it happen and waits until its effect was observed.
func (f *fault) Inject(ctx context.Context) (faults.Injection, error) {
	rdb := f.server.Observer().WithTimeout(faults.Patience)
	effect, err := f.inject(ctx, rdb)
	if err != nil {
		return faults.Injection{}, errors.Join(fmt.Errorf("%s on %s: %w", f.name, f.server.Name(), err), f.undo(ctx, rdb))
	}
	injection := faults.Injection{Effect: f.server.Name() + " " + effect}
	if f.heal != nil {
		injection.Heal = faults.Once(func(ctx context.Context) (string, error) {
			effect, err := f.heal(ctx, rdb)
			if err != nil {
				return "", fmt.Errorf("end %s on %s: %w", f.name, f.server.Name(), err)
			}
			return f.server.Name() + " " + effect, nil
		})
	}
	return injection, nil
}

func (f *fault) undo(ctx context.Context, rdb *redis.Client) error {
	if f.heal == nil {
		return nil
	}
	ctx, cancel := faults.Undo(ctx)
	defer cancel()
	_, err := f.heal(ctx, rdb)
	return err
}
