//! The driver protocol for a lock in Rust of which the calls block, so that a driver is the lock and nothing else: copy this file
//! beside it. Each request is answered by a thread of its own.
use serde_json::{json, Value};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};

/// What came of a request: done, a definite no, or an unknown outcome with the reason.
pub enum Outcome<T> {
    Done(T),
    No(String),
    Unknown(String),
}

pub trait Library: Send + Sync + 'static {
    type Grant: Send + Sync + 'static;
    /// Asks once. The number is for how many ms the library says that the grant may be believed; i64::MAX: it does not say.
    fn acquire(&self, lock: &str, lease_ms: u64) -> Outcome<(Self::Grant, i64)>;
    fn release(&self, grant: &Self::Grant) -> Outcome<()>;
    /// Asks for another lease, where the hello promises it. The number is that of acquire.
    fn extend(&self, _grant: &Self::Grant, _lease_ms: u64) -> Outcome<i64> {
        Outcome::Unknown("it has no extension".into())
    }
    /// Returns whether the library says that the grant is lost, once it does so or is done with it, where the hello promises to tell.
    fn lost(&self, _grant: &Self::Grant) -> bool {
        false
    }
}

pub fn serve<L: Library>(says: Value, open: impl Fn(Vec<String>) -> L) {
    let mut hello = json!({"protocol": 2, "language": "rust", "parallel": 16, "keys": ["{name}"]});
    hello.as_object_mut().unwrap().extend(says.as_object().unwrap().clone());
    let stream = UnixStream::connect(std::env::var("LOCKCHAOS_SOCKET").unwrap()).unwrap();
    let out = Arc::new(Mutex::new(stream.try_clone().unwrap()));
    let holds: Arc<Mutex<HashMap<String, Arc<L::Grant>>>> = Arc::default();
    let mut library: Option<Arc<L>> = None;
    for line in BufReader::new(stream).lines() {
        let Ok(line) = line else { break };
        let q: Value = serde_json::from_str(&line).unwrap();
        let out = out.clone();
        let write = move |a: Value| {
            let _ = out.lock().unwrap().write_all(format!("{a}\n").as_bytes());
        };
        let say = {
            let write = write.clone();
            move |mut a: Value, id: &Value| {
                a["re"] = id.clone();
                write(a);
            }
        };
        if q["op"] == "hello" {
            if let Some(servers) = q["servers"].as_array() {
                library = Some(Arc::new(open(servers.iter().map(|s| s["addr"].as_str().unwrap().into()).collect())));
            }
            say(hello.clone(), &q["id"]);
            continue;
        }
        if q["op"] == "ping" || !["acquire", "extend", "release"].iter().any(|op| q["op"] == *op) {
            say(json!({"result": if q["op"] == "ping" { "ok" } else { "unsupported" }}), &q["id"]);
            continue;
        }
        let (library, holds) = (library.clone().unwrap(), holds.clone());
        let tells = hello["promises"]["lost"] == true;
        std::thread::spawn(move || {
            let mut watched = None;
            let outcome = if q["op"] == "acquire" {
                match library.acquire(q["lock"].as_str().unwrap(), q["lease_ms"].as_u64().unwrap_or(0)) {
                    Outcome::Done((grant, valid)) => {
                        let hold = format!("h{}", q["id"]);
                        let grant = Arc::new(grant);
                        holds.lock().unwrap().insert(hold.clone(), grant.clone());
                        watched = Some((hold.clone(), grant));
                        let mut answer = json!({"result": "ok", "hold": hold});
                        if valid != i64::MAX {
                            answer["valid_ms"] = valid.into();
                        }
                        Outcome::Done(answer)
                    }
                    Outcome::No(why) => Outcome::No(why),
                    Outcome::Unknown(why) => Outcome::Unknown(why),
                }
            } else {
                let grant = holds.lock().unwrap()[q["hold"].as_str().unwrap()].clone();
                let outcome = if q["op"] == "extend" {
                    library.extend(&grant, q["lease_ms"].as_u64().unwrap_or(0))
                } else {
                    match library.release(&grant) {
                        Outcome::Done(()) => Outcome::Done(i64::MAX),
                        Outcome::No(why) => Outcome::No(why),
                        Outcome::Unknown(why) => Outcome::Unknown(why),
                    }
                };
                match outcome {
                    Outcome::Done(i64::MAX) => Outcome::Done(json!({"result": "ok"})),
                    Outcome::Done(valid) => Outcome::Done(json!({"result": "ok", "valid_ms": valid})),
                    Outcome::No(why) => Outcome::No(why),
                    Outcome::Unknown(why) => Outcome::Unknown(why),
                }
            };
            let answer = match outcome {
                Outcome::Done(answer) => answer,
                Outcome::No(why) => json!({"result": "fail", "why": why}),
                Outcome::Unknown(why) => json!({"result": "info", "why": why}),
            };
            say(answer, &q["id"]);
            if let (true, Some((hold, grant))) = (tells, watched) {
                if library.lost(&grant) {
                    write(json!({"event": "lost", "hold": hold}));
                }
            }
        });
    }
}
