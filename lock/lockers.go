package lock

import "context"

// Each kind of lock as a [Locker], which is asked for by name:
//
//	err := lock.Do(ctx, client.Fair(), "orders", lock.Options{Wait: time.Minute}, work)

// Fenced grants locks as a [FencedMutex] of that name does.
func (c *Client) Fenced() Locker {
	return LockerFunc(func(ctx context.Context, name string, o Options) (*Hold, error) {
		return c.FencedMutex(name).Acquire(ctx, o)
	})
}

// Fair grants locks as a [FairMutex] of that name does.
func (c *Client) Fair() Locker {
	return LockerFunc(func(ctx context.Context, name string, o Options) (*Hold, error) {
		return c.FairMutex(name).Acquire(ctx, o)
	})
}

// Spin grants locks as a [SpinMutex] of that name with those pauses does.
func (c *Client) Spin(b Backoff) Locker {
	return LockerFunc(func(ctx context.Context, name string, o Options) (*Hold, error) {
		return c.SpinMutex(name, b).Acquire(ctx, o)
	})
}

// Readers grants the read side of the [RWMutex] of that name.
func (c *Client) Readers(rw RWOptions) Locker {
	return LockerFunc(func(ctx context.Context, name string, o Options) (*Hold, error) {
		return c.RWMutex(name, rw).Read().Acquire(ctx, o)
	})
}

// Writers grants the write side of the [RWMutex] of that name.
func (c *Client) Writers(rw RWOptions) Locker {
	return LockerFunc(func(ctx context.Context, name string, o Options) (*Hold, error) {
		return c.RWMutex(name, rw).Write().Acquire(ctx, o)
	})
}

// Permits grants n permits of the [PermitSemaphore] of that name at a time.
func (c *Client) Permits(n int) Locker {
	return LockerFunc(func(ctx context.Context, name string, o Options) (*Hold, error) {
		return c.PermitSemaphore(name).Acquire(ctx, n, o)
	})
}
