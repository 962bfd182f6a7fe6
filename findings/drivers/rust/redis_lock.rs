//! MultiResourceLock of redis-lock, for one resource on one server.
mod lockchaos;
use redis_lock::{setup, MultiResourceLock};
use std::time::Duration;
use tokio::runtime::Runtime;
use lockchaos::{serve, Library, Outcome};

struct RedisLock(redis::Client, Runtime);

impl Library for RedisLock {
    type Grant = String;
    fn acquire(&self, lock: &str, lease_ms: u64) -> Outcome<(String, i64)> {
        let asked = MultiResourceLock::new(self.0.clone())
            .and_then(|mut l| self.1.block_on(l.try_acquire(&[lock.to_string()], Duration::from_millis(lease_ms))));
        match asked {
            Ok(Some(id)) => Outcome::Done((id, i64::MAX)),
            Ok(None) => Outcome::No("taken".into()),
            Err(e) => Outcome::Unknown(e.to_string()),
        }
    }
    fn release(&self, id: &String) -> Outcome<()> {
        match MultiResourceLock::new(self.0.clone()).and_then(|mut l| self.1.block_on(l.release(id))) {
            Ok(0) => Outcome::No("not held".into()),
            Ok(_) => Outcome::Done(()),
            Err(e) => Outcome::Unknown(e.to_string()),
        }
    }
}

fn main() {
    serve(r#""name":"redis-lock","keys":["lock:{name}"],"promises":{"release_tells":true}"#, |servers| {
        let (client, rt) = (redis::Client::open(format!("redis://{}/", servers[0])).unwrap(), Runtime::new().unwrap());
        rt.block_on(setup(&client)).unwrap();
        RedisLock(client, rt)
    });
}
