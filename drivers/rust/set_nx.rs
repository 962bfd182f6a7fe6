//! A lock of SET NX PX and two scripts over a socket, on one server, for which rustc is enough:
//! rustc --edition 2021 -O drivers/rust/set_nx.rs, and lockchaos run --lock exec:./set_nx
mod lockchaos;
use lockchaos::{serve, Library, Outcome};
use std::io::{BufRead, BufReader, Error, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

const RELEASE: &str = "if redis.call('GET',KEYS[1]) == ARGV[1] then return redis.call('DEL',KEYS[1]) end return 0";
const EXTEND: &str = "if redis.call('GET',KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE',KEYS[1],ARGV[2]) end return 0";

struct SetNx {
    server: SocketAddr,
    tokens: AtomicU64,
}

/// How long a server may take to answer.
const TIMEOUT: Duration = Duration::from_secs(1);

impl SetNx {
    /// Asks on a connection of its own, so that no late reply is taken for that of another request.
    fn ask(&self, words: &[&str]) -> Result<String, Error> {
        let mut s = TcpStream::connect_timeout(&self.server, TIMEOUT)?;
        s.set_read_timeout(Some(TIMEOUT))?;
        let asked: String = words.iter().map(|w| format!("${}\r\n{w}\r\n", w.len())).collect();
        s.write_all(format!("*{}\r\n{asked}", words.len()).as_bytes())?;
        let mut reply = String::new();
        BufReader::new(s).read_line(&mut reply)?;
        if !reply.ends_with("\r\n") || reply.starts_with('-') { Err(Error::other(reply)) } else { Ok(reply.trim().into()) }
    }

    fn held(&self, words: &[&str]) -> Outcome<()> {
        match self.ask(words) {
            Ok(reply) if reply == ":1" => Outcome::Done(()),
            Ok(_) => Outcome::No("not held".into()),
            Err(e) => Outcome::Unknown(e.to_string()),
        }
    }
}

impl Library for SetNx {
    type Grant = (String, String);
    fn acquire(&self, lock: &str, lease_ms: u64) -> Outcome<(Self::Grant, i64)> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos();
        let token = format!("{}.{now}.{}", std::process::id(), self.tokens.fetch_add(1, Ordering::Relaxed));
        match self.ask(&["SET", lock, &token, "NX", "PX", &lease_ms.to_string()]) {
            Ok(reply) if reply == "+OK" => Outcome::Done(((lock.into(), token), i64::MAX)),
            Ok(_) => Outcome::No("taken".into()),
            Err(e) => Outcome::Unknown(e.to_string()),
        }
    }
    fn release(&self, (lock, token): &Self::Grant) -> Outcome<()> {
        self.held(&["EVAL", RELEASE, "1", lock, token])
    }
    fn extend(&self, (lock, token): &Self::Grant, lease_ms: u64) -> Outcome<i64> {
        self.held(&["EVAL", EXTEND, "1", lock, token, &lease_ms.to_string()]).map(|()| i64::MAX)
    }
}

fn main() {
    serve(r#""name":"set-nx","promises":{"extend":true,"release_tells":true}"#, |servers| SetNx {
        server: servers[0].parse().unwrap(),
        tokens: AtomicU64::new(0),
    });
}
