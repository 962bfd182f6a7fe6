//! The driver protocol, for blocking locks: each request is answered by a thread of its own.
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
    /// Asks once. The number is for how many ms the library says that the grant may be believed.
    fn acquire(&self, lock: &str, lease_ms: u64) -> Outcome<(Self::Grant, i64)>;
    fn release(&self, grant: &Self::Grant) -> Outcome<()>;
}

pub fn serve<L: Library>(hello: Value, open: impl Fn(Vec<String>) -> L) {
    let stream = UnixStream::connect(std::env::var("LOCKCHAOS_SOCKET").unwrap()).unwrap();
    let out = Arc::new(Mutex::new(stream.try_clone().unwrap()));
    let holds: Arc<Mutex<HashMap<String, Arc<L::Grant>>>> = Arc::default();
    let mut library: Option<Arc<L>> = None;
    for line in BufReader::new(stream).lines() {
        let Ok(line) = line else { break };
        let q: Value = serde_json::from_str(&line).unwrap();
        let out = out.clone();
        let say = move |mut a: Value, id: &Value| {
            a["re"] = id.clone();
            let _ = out.lock().unwrap().write_all(format!("{a}\n").as_bytes());
        };
        if q["op"] == "hello" {
            if let Some(servers) = q["servers"].as_array() {
                library = Some(Arc::new(open(servers.iter().map(|s| s["addr"].as_str().unwrap().into()).collect())));
            }
            say(hello.clone(), &q["id"]);
            continue;
        }
        if q["op"] == "ping" {
            say(json!({"result": "ok"}), &q["id"]);
            continue;
        }
        let (library, holds) = (library.clone().unwrap(), holds.clone());
        std::thread::spawn(move || {
            let outcome = if q["op"] == "acquire" {
                match library.acquire(q["lock"].as_str().unwrap(), q["lease_ms"].as_u64().unwrap_or(0)) {
                    Outcome::Done((grant, valid)) => {
                        let hold = format!("h{}", q["id"]);
                        holds.lock().unwrap().insert(hold.clone(), Arc::new(grant));
                        Outcome::Done(json!({"result": "ok", "hold": hold, "valid_ms": valid}))
                    }
                    Outcome::No(why) => Outcome::No(why),
                    Outcome::Unknown(why) => Outcome::Unknown(why),
                }
            } else {
                let grant = holds.lock().unwrap()[q["hold"].as_str().unwrap()].clone();
                match library.release(&grant) {
                    Outcome::Done(()) => Outcome::Done(json!({"result": "ok"})),
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
        });
    }
}
