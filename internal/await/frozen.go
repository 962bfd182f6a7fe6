package await

import (
	"context"
	"strings"
	"time"
)

// frozenLimit is how long a pause of a container is repeated.
const frozenLimit = 10 * time.Second

// Frozen pauses a container, and repeats that while the runtime answers that it is unable to
// freeze it: runc gives up after some tries to stop all processes at once, which fails now
// and then on a busy machine. Any other answer is final.
func Frozen(ctx context.Context, pause func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, frozenLimit)
	defer cancel()
	var final error
	err := Until(limited, func() error {
		err := pause(ctx)
		if err != nil && strings.Contains(err.Error(), "unable to freeze") {
			return err
		}
		final = err
		return nil
	})
	if err != nil {
		return err
	}
	return final
}
