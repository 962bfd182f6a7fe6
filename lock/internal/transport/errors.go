package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"
)

// ErrClosed says that the client was closed.
var ErrClosed = errors.New("lock client closed")

// MayArrive reports whether the server may have carried out what came to that
// error, or may do it yet.
func MayArrive(err error) bool { return err != nil && !IsRefusal(err) && !IsUnsent(err) }

// IsRefusal reports whether a server answered with an error, so that asking
// once more won't help.
func IsRefusal(err error) bool {
	var e redis.Error
	return errors.As(err, &e)
}

// IsBusy reports whether a server answered that it can't do anything at the moment: it
// loads its data, its cluster isn't whole, or the slot of the lock moves to another
// server. It has not carried out what it was asked for.
func IsBusy(err error) bool {
	return err != nil && (redis.IsTryAgainError(err) || redis.IsLoadingError(err) || redis.IsClusterDownError(err) ||
		redis.IsMasterDownError(err) || redis.IsMaxClientsError(err) || redis.IsNoReplicasError(err))
}

// IsTimeout reports whether no answer came in time.
func IsTimeout(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.As(err, &timeout) && timeout.Timeout()
}

// IsUnsent reports whether there was no connection to send by.
func IsUnsent(err error) bool {
	var dial *net.OpError
	return errors.As(err, &dial) && dial.Op == "dial" || errors.Is(err, redis.ErrPoolTimeout)
}

// IsPassing reports whether the same request may fare better in a moment: when
// go-redis would repeat it.
func IsPassing(err error) bool {
	var network interface{ Timeout() bool }
	switch {
	case IsUnsent(err):
		return true
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return false
	}
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &network) || IsBusy(err) || redis.IsReadOnlyError(err)
}

// advice is what can be done about the errors of a server that have the text.
var advice = []struct{ text, help string }{ //nolint:gochecknoglobals // a constant
	{"WRONGTYPE", "it holds something else than this kind of lock: use another name or Config.Prefix, or remove the key"},
	{"READONLY", "the server is a replica: connect to the master, or with a failover or cluster client, which find it"},
	{"NOPERM", commands},
	{"The user executing the script", commands},
	{"OOM command not allowed", "the server's memory is used up: raise maxmemory"},
	{"NOAUTH", "give the Redis client the user and the password that the server wants"},
	{"unauthenticated", "give the Redis client the user and the password that the server wants"},
	{"WRONGPASS", "give the Redis client the user and the password that the server wants"},
	{"LOADING", "the server is still loading its data: ask again in a moment"},
	{"BUSY Redis is busy", "a script runs for too long on the server: let it end, or kill it with SCRIPT KILL"},
	{"TRYAGAIN", "the slot of this lock is moving to another server: ask again when it has"},
	{"ASK ", "the slot of this lock is moving to another server: ask again when it has"},
	{"CLUSTERDOWN", "no server serves the slot of this lock: look at CLUSTER INFO"},
	{"MASTERDOWN", "the server is a replica without its master: connect to the master, or with a failover or cluster client, which find it"},
}

// commands are those that a user must be allowed.
const commands = "let the user run EVALSHA, EVAL, HGETALL, HMGET, HSET, PEXPIRE, HDEL, HGET, HEXISTS, HLEN, PEXPIREAT, EXISTS, GET, MGET, SET, DEL, TIME, ZADD, ZCARD, ZCOUNT, ZPOPMIN, ZRANGE, ZRANGEBYSCORE, ZREM, ZREMRANGEBYSCORE, ZREVRANGE, ZSCORE, PTTL, WAIT, PUBLISH, PUBSUB, SUBSCRIBE and UNSUBSCRIBE on the prefix"

// explain adds what can be done about an error of a server that concerns a key.
func explain(err error, key string) error {
	for _, a := range advice {
		if strings.Contains(err.Error(), a.text) {
			return fmt.Errorf("key %s: %s: %w", key, a.help, err)
		}
	}
	return err
}
