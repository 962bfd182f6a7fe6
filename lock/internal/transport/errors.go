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

// explain adds what can be done about a server's error.
func explain(err error, s Call) error {
	if text := advice(err, s.key()); text != "" {
		return fmt.Errorf("%s: %w", text, err)
	}
	return err
}

// IsBusy reports whether a server answered that it can't do anything at the moment: it
// loads its data, its cluster isn't whole, or the slot of the lock moves to another
// server. It has not carried out what it was asked for.
func IsBusy(err error) bool {
	return err != nil && IsRefusal(err) && (redis.IsTryAgainError(err) || redis.IsLoadingError(err) || redis.IsClusterDownError(err) ||
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
	if err == nil { // before the variables, which are allocated
		return false
	}
	var dial *net.OpError
	var network interface{ Timeout() bool }
	switch {
	case errors.As(err, &dial) && dial.Op == "dial":
		return true
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return false
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, redis.ErrPoolTimeout),
		errors.As(err, &network):
		return true
	}
	return redis.IsMaxClientsError(err) || redis.IsLoadingError(err) || redis.IsReadOnlyError(err) ||
		redis.IsMasterDownError(err) || redis.IsClusterDownError(err) || redis.IsTryAgainError(err) ||
		redis.IsNoReplicasError(err)
}

func isUnknownScript(err error) bool { return redis.HasErrorPrefix(err, "NOSCRIPT") }

// advice says what can be done about a server's error; "" for nothing special.
func advice(err error, key string) string {
	if err == nil {
		return ""
	}
	text := err.Error()
	switch {
	case strings.Contains(text, "WRONGTYPE"):
		return "key " + key + " holds something else than this kind of lock: use another name or Config.Prefix, or remove the key"
	case strings.Contains(text, "READONLY"):
		return "the server is a replica: connect to the master, or with a failover or cluster client, which find it"
	case strings.Contains(text, "NOPERM"), strings.Contains(text, "The user executing the script"):
		return "let the user run EVALSHA, EVAL, HGETALL, HMGET, HSET, PEXPIRE, HDEL, HGET, HEXISTS, HLEN, PEXPIREAT, EXISTS, GET, SET, DEL, TIME, ZADD, ZCARD, ZCOUNT, ZPOPMIN, ZRANGE, ZRANGEBYSCORE, ZREM, ZREMRANGEBYSCORE, ZREVRANGE, ZSCORE, TYPE, PTTL, WAIT, PUBLISH, PUBSUB, SUBSCRIBE and UNSUBSCRIBE on the prefix"
	case strings.Contains(text, "OOM command not allowed"):
		return "the server's memory is used up: raise maxmemory"
	case strings.Contains(text, "NOAUTH"), strings.Contains(text, "unauthenticated"), strings.Contains(text, "WRONGPASS"):
		return "give the Redis client the user and the password that the server wants"
	case strings.Contains(text, "LOADING"):
		return "the server is still loading its data: ask again in a moment"
	case strings.Contains(text, "BUSY Redis is busy"):
		return "a script runs for too long on the server: let it end, or kill it with SCRIPT KILL"
	case strings.Contains(text, "TRYAGAIN"), strings.HasPrefix(text, "ASK "):
		return "the slot of this lock is moving to another server: ask again when it has"
	case strings.Contains(text, "CLUSTERDOWN"):
		return "no server serves the slot of this lock: look at CLUSTER INFO"
	case strings.Contains(text, "MASTERDOWN"):
		return "the server is a replica without its master: connect to the master, or with a failover or cluster client, which find it"
	default:
		return ""
	}
}
