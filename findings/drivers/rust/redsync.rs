//! Redsync of the crate redsync, on one server.
mod wire;
use redsync::{Lock, RedisInstance, Redsync, RedsyncError};
use serde_json::json;
use std::time::{Duration, Instant};
use wire::{serve, Library, Outcome};

struct Locks(Redsync<RedisInstance>);

/// A definite no only where the server said so.
fn outcome<T>(result: Result<T, RedsyncError>) -> Outcome<T> {
    match result {
        Ok(v) => Outcome::Done(v),
        Err(e) => {
            let text = format!("{e:?}");
            if text.contains("RedisError") || text.contains("Unexpected") || !(text.contains("ResourceLocked") || text.contains("InvalidLease")) {
                Outcome::Unknown(text)
            } else {
                Outcome::No(text)
            }
        }
    }
}

impl Library for Locks {
    type Grant = Lock;
    fn acquire(&self, lock: &str, lease_ms: u64) -> Outcome<(Lock, i64)> {
        let asked = Instant::now();
        match outcome(self.0.lock(lock, Duration::from_millis(lease_ms))) {
            Outcome::Done(l) => {
                let valid = l.expiry.saturating_duration_since(asked).as_millis() as i64;
                Outcome::Done((l, valid))
            }
            Outcome::No(why) => Outcome::No(why),
            Outcome::Unknown(why) => Outcome::Unknown(why),
        }
    }
    fn release(&self, l: &Lock) -> Outcome<()> {
        outcome(self.0.unlock(l))
    }
    fn extend(&self, l: &Lock, lease_ms: u64) -> Outcome<i64> {
        let asked = Instant::now();
        match outcome(self.0.extend(l, Duration::from_millis(lease_ms))) {
            Outcome::Done(l) => Outcome::Done(l.expiry.saturating_duration_since(asked).as_millis() as i64),
            Outcome::No(why) => Outcome::No(why),
            Outcome::Unknown(why) => Outcome::Unknown(why),
        }
    }
}

fn main() {
    let hello = json!({"protocol": 1, "name": "redsync", "language": "rust", "parallel": 16, "keys": ["{name}"],
        "promises": {"extend": true, "release_tells": true}});
    serve(hello, |servers| {
        Locks(redsync::RedsyncBuilder::new(vec![RedisInstance::new(format!("redis://{}/", servers[0])).unwrap()])
            .retry_count(1)
            .build())
    });
}
