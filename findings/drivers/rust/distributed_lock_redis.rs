//! RedisLockProvider of distributed-lock-redis, with an expiry of 1.5 s and its other times in the proportion of its defaults. It
//! extends a grant until its release, and says when it is lost. The argument: one, a server; or quorum, several.
mod lockchaos;
use distributed_lock_core::traits::{DistributedLock, LockHandle, LockProvider};
use distributed_lock_redis::{RedisLockHandle, RedisLockProvider};
use std::sync::Mutex;
use std::time::Duration;
use tokio::{runtime::Runtime, sync::watch};
use lockchaos::{serve, Library, Outcome};

struct Locks(RedisLockProvider, Runtime);

struct Grant {
    handle: Mutex<Option<RedisLockHandle>>,
    lost: watch::Receiver<bool>,
}

impl Library for Locks {
    type Grant = Grant;
    fn acquire(&self, lock: &str, _lease_ms: u64) -> Outcome<(Grant, i64)> {
        match self.1.block_on(self.0.create_lock(lock).try_acquire()) {
            Ok(Some(h)) => {
                let lost = h.lost_token().clone();
                Outcome::Done((Grant { handle: Mutex::new(Some(h)), lost }, i64::MAX))
            }
            Ok(None) => Outcome::Unknown("none: it does not say whether servers refused or were late".into()),
            Err(e) => Outcome::Unknown(e.to_string()),
        }
    }
    fn release(&self, g: &Grant) -> Outcome<()> {
        let Some(h) = g.handle.lock().unwrap().take() else { return Outcome::No("it was released".into()) };
        match self.1.block_on(h.release()) {
            Ok(()) => Outcome::Done(()),
            Err(e) => Outcome::Unknown(e.to_string()),
        }
    }
    fn lost(&self, g: &Grant) -> bool {
        let mut lost = g.lost.clone();
        let told = self.1.block_on(lost.wait_for(|l| *l)).is_ok();
        told
    }
}

fn main() {
    let quorum = std::env::args().any(|a| a == "quorum");
    let hello = format!(
        r#""name":"distributed-lock-redis","keys":["distributed-lock:{{name}}"],"promises":{{"watchdog":true,"lost":true,"quorum":{quorum}}}"#
    );
    serve(&hello, |servers| {
        let rt = Runtime::new().unwrap();
        let provider = RedisLockProvider::builder()
            .urls(&servers.iter().map(|a| format!("redis://{a}")).collect::<Vec<_>>())
            .expiry(Duration::from_millis(1500))
            .extension_cadence(Duration::from_millis(500))
            .min_validity(Duration::from_millis(1350));
        Locks(rt.block_on(provider.build()).unwrap(), rt)
    });
}
