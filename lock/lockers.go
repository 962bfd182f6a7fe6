package lock

import "context"

// Each kind of lock as a [Locker], which is asked for by name:
//
//	err := lock.Do(ctx, client.Fair(), "orders", lock.Options{Wait: time.Minute}, work)

// named is a [Locker] of the locks that of makes.
func named[L interface {
	Acquire(ctx context.Context, o Options) (*Hold, error)
}](of func(name string) L) Locker {
	return LockerFunc(func(ctx context.Context, name string, o Options) (*Hold, error) { return of(name).Acquire(ctx, o) })
}

// Fenced grants locks as a [FencedMutex] of that name does.
func (c *Client) Fenced() Locker { return named(c.FencedMutex) }

// Fair grants locks as a [FairMutex] of that name does.
func (c *Client) Fair() Locker { return named(c.FairMutex) }

// Spin grants locks as a [SpinMutex] of that name with those pauses does.
func (c *Client) Spin(b Backoff) Locker {
	return named(func(name string) *SpinMutex { return c.SpinMutex(name, b) })
}

// Readers grants the read side of the [RWMutex] of that name.
func (c *Client) Readers(rw RWOptions) Locker {
	return named(func(name string) *RWSide { return c.RWMutex(name, rw).Read() })
}

// Writers grants the write side of the [RWMutex] of that name.
func (c *Client) Writers(rw RWOptions) Locker {
	return named(func(name string) *RWSide { return c.RWMutex(name, rw).Write() })
}

// Permits leases n permits of the [Semaphore] of that name at a time.
func (c *Client) Permits(n int) Locker {
	return LockerFunc(func(ctx context.Context, name string, o Options) (*Hold, error) {
		return c.Semaphore(name).Lease(ctx, n, o)
	})
}
