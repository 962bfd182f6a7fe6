//! LockManager of rslock, on one server. A validity of more than nine leases is told as nine: the protocol takes no more.
mod lockchaos;
use rslock::{Lock, LockError, LockManager};
use tokio::runtime::{Builder, Runtime};
use lockchaos::{serve, Library, Outcome};

struct Rslock(LockManager, Runtime);

impl Library for Rslock {
    type Grant = (Vec<u8>, Vec<u8>);
    fn acquire(&self, lock: &str, lease_ms: u64) -> Outcome<(Self::Grant, i64)> {
        match self.1.block_on(self.0.lock(lock.as_bytes(), lease_ms as usize)) {
            Ok(l) => {
                let valid = (l.validity_time as u128).min(lease_ms as u128 * 9) as i64;
                Outcome::Done(((l.resource, l.val), valid))
            }
            Err(LockError::Unavailable) => Outcome::Unknown("no majority: it does not say whether servers refused or failed".into()),
            Err(_) => Outcome::Unknown("another error".into()),
        }
    }
    fn release(&self, (resource, val): &Self::Grant) -> Outcome<()> {
        let l = Lock { resource: resource.clone(), val: val.clone(), validity_time: 0, lock_manager: &self.0 };
        self.1.block_on(self.0.unlock(&l));
        Outcome::Done(())
    }
}

fn main() {
    serve(r#""name":"rslock","promises":{}"#, |servers| {
        let mut m = LockManager::new(servers.iter().map(|a| format!("redis://{a}/")).collect::<Vec<_>>());
        m.set_retry(1, 1);
        Rslock(m, Builder::new_current_thread().enable_all().build().unwrap())
    });
}
