//! The driver protocol for a lock in Rust of which the calls block, so that a driver is the lock and nothing else: copy this file
//! beside it. It needs no crate. Each request is answered by a thread of its own.
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

impl<T> Outcome<T> {
    pub fn map<U>(self, done: impl FnOnce(T) -> U) -> Outcome<U> {
        match self {
            Outcome::Done(t) => Outcome::Done(done(t)),
            Outcome::No(why) => Outcome::No(why),
            Outcome::Unknown(why) => Outcome::Unknown(why),
        }
    }
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

/// The text of a field of a message, or its number; "" where it is not there.
fn field<'a>(line: &'a str, name: &str) -> &'a str {
    let Some(at) = line.find(&format!("\"{name}\":")) else { return "" };
    let value = &line[at + name.len() + 3..];
    match value.strip_prefix('"') {
        Some(text) => &text[..text.find('"').unwrap_or(text.len())],
        None => &value[..value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len())],
    }
}

fn valid(ms: i64) -> String {
    if ms == i64::MAX { String::new() } else { format!(",\"valid_ms\":{ms}") }
}

/// Answers until the run is over. hello has the fields of the answer to hello as JSON, its name and promises; open is given the addresses
/// of the servers.
pub fn serve<L: Library>(hello: &str, open: impl Fn(Vec<String>) -> L) {
    let stream = UnixStream::connect(std::env::var("LOCKCHAOS_SOCKET").unwrap()).unwrap();
    let out = Arc::new(Mutex::new(stream.try_clone().unwrap()));
    let write = move |message: String| {
        let _ = out.lock().unwrap().write_all(format!("{{{message}}}\n").as_bytes()); // else the run is over
    };
    let holds: Arc<Mutex<HashMap<String, Arc<L::Grant>>>> = Arc::default();
    let mut library: Option<Arc<L>> = None;
    let tells = hello.contains("\"lost\":true");
    for line in BufReader::new(stream).lines() {
        let Ok(line) = line else { break };
        let id = field(&line, "id").to_string();
        match field(&line, "op") {
            "hello" => {
                let servers: Vec<String> = line.match_indices("\"addr\":").map(|(at, _)| field(&line[at..], "addr").to_string()).collect();
                if !servers.is_empty() {
                    library = Some(Arc::new(open(servers)));
                }
                let keys = if hello.contains("\"keys\":") { "" } else { "\"keys\":[\"{name}\"]," };
                let version = std::env::var("LOCKCHAOS_VERSION").unwrap_or_default();
                write(format!("\"re\":{id},\"protocol\":2,\"language\":\"rust\",\"version\":\"{version}\",\"parallel\":16,{keys}{hello}"));
                continue;
            }
            "acquire" | "extend" | "release" => {}
            op => {
                write(format!("\"re\":{id},\"result\":\"{}\"", if op == "ping" { "ok" } else { "unsupported" }));
                continue;
            }
        }
        let (library, holds, write) = (library.clone().unwrap(), holds.clone(), write.clone());
        std::thread::spawn(move || {
            let lease = field(&line, "lease_ms").parse().unwrap_or(0);
            let op = field(&line, "op");
            let hold = if op == "acquire" { format!("h{id}") } else { field(&line, "hold").to_string() };
            let held = |hold: &str| holds.lock().unwrap()[hold].clone();
            let outcome = match op {
                "acquire" => library.acquire(field(&line, "lock"), lease).map(|(grant, ms)| {
                    holds.lock().unwrap().insert(hold.clone(), Arc::new(grant));
                    format!(",\"hold\":\"{hold}\"{}", valid(ms))
                }),
                "extend" => library.extend(&held(&hold), lease).map(valid),
                _ => library.release(&held(&hold)).map(|()| String::new()),
            };
            let (result, more) = match outcome {
                Outcome::Done(more) => ("ok", more),
                Outcome::No(why) => ("fail", format!(",\"why\":\"{}\"", plain(&why))),
                Outcome::Unknown(why) => ("info", format!(",\"why\":\"{}\"", plain(&why))),
            };
            write(format!("\"re\":{id},\"result\":\"{result}\"{more}"));
            if tells && op == "acquire" && result == "ok" && library.lost(&held(&hold)) {
                write(format!("\"event\":\"lost\",\"hold\":\"{hold}\""));
            }
        });
    }
}

/// A text without what JSON escapes.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() || c == '"' || c == '\\' { '\'' } else { c }).collect()
}
