//! RedLock of redlock-rs, on one server. A validity of more than nine leases is told as nine: the protocol takes no more.
mod lockchaos;
use redlock::{Lock, RedLock};
use lockchaos::{serve, Library, Outcome};

struct Redlock(RedLock);

impl Library for Redlock {
    type Grant = (Vec<u8>, Vec<u8>);
    fn acquire(&self, lock: &str, lease_ms: u64) -> Outcome<(Self::Grant, i64)> {
        match self.0.lock(lock.as_bytes(), lease_ms as usize) {
            Ok(Some(l)) => {
                let valid = (l.validity_time as u128).min(lease_ms as u128 * 9) as i64;
                Outcome::Done(((l.resource, l.val), valid))
            }
            Ok(None) => Outcome::Unknown("no majority: it does not say whether servers refused or failed".into()),
            Err(e) => Outcome::Unknown(e.to_string()),
        }
    }
    fn release(&self, (resource, val): &Self::Grant) -> Outcome<()> {
        self.0.unlock(&Lock { resource: resource.clone(), val: val.clone(), validity_time: 0, lock_manager: &self.0 });
        Outcome::Done(())
    }
}

fn main() {
    serve(r#""name":"redlock","promises":{}"#, |servers| {
        let mut l = RedLock::new(servers.iter().map(|a| format!("redis://{a}/")).collect::<Vec<_>>());
        l.set_retry(1, 1);
        Redlock(l)
    });
}
