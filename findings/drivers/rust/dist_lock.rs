//! DistLock of dist_lock with its Redis driver, on one server. A grant is an object of its own, as two processes have. The argument: late, to
//! release whenever it is asked to; or extend, to extend then, and to release in time alone.
mod lockchaos;
use dist_lock::core::{DistLock, LockConfig};
use dist_lock::provider::RedisDriver;
use redis::Client;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use lockchaos::{serve, Library, Outcome};

struct Locks(&'static Client, bool);

struct Grant {
    lock: Mutex<DistLock<RedisDriver<'static, Client>>>,
    end: Mutex<Instant>, // of its lease
}
// The lock, which keeps its state in a cell, is behind a mutex, and its client may be shared.
unsafe impl Send for Grant {}
unsafe impl Sync for Grant {}

impl Library for Locks {
    type Grant = Grant;
    fn acquire(&self, lock: &str, lease_ms: u64) -> Outcome<(Grant, i64)> {
        let end = Instant::now() + Duration::from_millis(lease_ms);
        let config = LockConfig::from_mills(lock.to_string(), 0, lease_ms as i64);
        let l = DistLock::new(config, RedisDriver::new(&lock.to_string(), self.0));
        match l.acquire() {
            Ok(true) => Outcome::Done((Grant { lock: Mutex::new(l), end: Mutex::new(end) }, i64::MAX)),
            Ok(false) => Outcome::No("taken".into()),
            Err(e) => Outcome::Unknown(e.to_string()),
        }
    }
    fn release(&self, g: &Grant) -> Outcome<()> {
        if self.1 && Instant::now() + Duration::from_millis(100) > *g.end.lock().unwrap() {
            return Outcome::No("its time is over".into());
        }
        match g.lock.lock().unwrap().release() {
            Ok(()) => Outcome::Done(()),
            Err(e) => Outcome::Unknown(e.to_string()),
        }
    }
    fn extend(&self, g: &Grant, lease_ms: u64) -> Outcome<i64> {
        let end = Instant::now() + Duration::from_millis(lease_ms);
        match g.lock.lock().unwrap().extend() {
            Ok(true) => {
                *g.end.lock().unwrap() = end;
                Outcome::Done(i64::MAX)
            }
            Ok(false) => Outcome::No("not held".into()),
            Err(e) => Outcome::Unknown(e.to_string()),
        }
    }
}

fn main() {
    let extend = std::env::args().any(|a| a == "extend");
    let hello = format!(r#""name":"dist_lock","keys":["dist_lock:{{name}}"],"promises":{{"extend":{extend}}}"#);
    serve(&hello, |servers| Locks(Box::leak(Box::new(Client::open(format!("redis://{}/", servers[0])).unwrap())), extend));
}
