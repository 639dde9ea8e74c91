//! A web server that fails as it is told to, and one of S3's protocol.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::workplace::Finished;

/// A request as it came, and its number.
pub(super) struct Request {
    pub(super) number: usize,
    pub(super) head: String,
    pub(super) body: String,
}

impl Request {
    /// The value of a header.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        header_of(&self.head, name)
    }

    /// The first byte that is asked for, where not all are.
    pub(super) fn start(&self) -> Option<usize> {
        self.header("range")?.strip_prefix("bytes=")?.split('-').next()?.parse().ok()
    }

    /// What a server answers that has `body` under the tag `tag`, but cuts the connection after `most` bytes.
    pub(super) fn answer(&self, body: &[u8], tag: &str, most: usize) -> Vec<u8> {
        if self.header("if-match").is_some_and(|wanted| wanted != tag) {
            return status("412 Precondition Failed", "");
        }
        let (code, range) = match self.start() {
            Some(start) => (
                "206 Partial Content",
                format!("Content-Range: bytes {start}-{}/{}\r\n", body.len() - 1, body.len()),
            ),
            None => ("200 OK", String::new()),
        };
        let rest = &body[self.start().unwrap_or(0)..];
        let head = format!(
            "HTTP/1.1 {code}\r\nETag: {tag}\r\nContent-Length: {}\r\n{range}Connection: close\r\n\r\n",
            rest.len()
        );
        [head.as_bytes(), &rest[..rest.len().min(most)]].concat()
    }
}

/// An answer without a version.
pub(super) fn status(code: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {code}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())
        .into_bytes()
}

/// A server that answers as a function says. It ends with the tests.
pub(super) struct Server {
    pub(super) host: String,
    /// The first lines and headers of all requests so far.
    pub(super) seen: Arc<Mutex<Vec<String>>>,
}

impl Server {
    pub(super) fn start(answer: impl Fn(&Request) -> Vec<u8> + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let heads = Arc::clone(&seen);
        std::thread::spawn(move || {
            for (number, stream) in listener.incoming().flatten().enumerate() {
                let head = head_of(&stream);
                let body_bytes = header_of(&head, "content-length").and_then(|value| value.parse().ok());
                // Unless all is read that was sent, the connection is reset instead of answered.
                let mut body = Vec::new();
                let _ = (&stream).take(body_bytes.unwrap_or(0)).read_to_end(&mut body);
                let body = String::from_utf8_lossy(&body).into_owned();
                heads.lock().unwrap().push(head.clone());
                // Who asks may go away at any time.
                let _ = (&stream).write_all(&answer(&Request { number, head, body }));
            }
        });
        Self { host, seen }
    }
}

fn header_of<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| {
        let (key, value) = line.split_once(": ")?;
        key.eq_ignore_ascii_case(name).then_some(value)
    })
}

fn head_of(mut stream: &TcpStream) -> String {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|count| count == 1) {
        head.push(byte[0]);
    }
    String::from_utf8_lossy(&head).into_owned()
}

/// A server of S3's protocol with an empty bucket `bucket`; it ends when dropped.
pub(super) struct S3 {
    process: Child,
    pub(super) endpoint: String,
}

impl S3 {
    /// Starts `moto_server`, of the folder that the variable `MLMTRAIN_STORES` names or from the PATH; none
    /// where there is no such program.
    pub(super) fn start() -> Option<Self> {
        let folder = std::env::var_os("MLMTRAIN_STORES").map(PathBuf::from).unwrap_or_default();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new(folder.join("moto_server"));
        command
            .args(["-H", "127.0.0.1", "-p", &port.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let process = command.spawn().ok()?;
        let server = Self { process, endpoint: format!("http://127.0.0.1:{port}") };
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            std::thread::sleep(Duration::from_millis(50));
        }
        server.put("", b"");
        Some(server)
    }

    /// Makes an object (or, without a name, the bucket). The server asks for no signature.
    pub(super) fn put(&self, key: &str, body: &[u8]) {
        self.request("PUT", key, body);
    }

    /// The keys of all objects, in their order.
    pub(super) fn keys(&self) -> Vec<String> {
        let listing = String::from_utf8(self.request("GET", "?list-type=2", b"")).unwrap();
        let keys = listing.split("<Key>").skip(1).filter_map(|rest| rest.split("</Key>").next());
        keys.map(str::to_string).collect()
    }

    pub(super) fn get(&self, key: &str) -> Vec<u8> {
        self.request("GET", key, b"")
    }

    pub(super) fn delete(&self, key: &str) {
        self.request("DELETE", key, b"");
    }

    fn request(&self, method: &str, key: &str, body: &[u8]) -> Vec<u8> {
        let host = self.endpoint.trim_start_matches("http://");
        let mut stream = TcpStream::connect(host).unwrap();
        // The server takes the service from the signature, which it does not check.
        let signature = "Authorization: AWS4-HMAC-SHA256 \
                         Credential=a/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=b";
        let head = format!(
            "{method} /bucket/{key} HTTP/1.1\r\nHost: {host}\r\n{signature}\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n",
            body.len()
        );
        stream.write_all(&[head.as_bytes(), body].concat()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let at = answer.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
        let code = String::from_utf8_lossy(&answer[..at]).into_owned();
        assert!(code.contains(" 200 ") || code.contains(" 204 "), "{method} {key}: {code}");
        answer.split_off(at + 4)
    }

    /// Runs a command of the program with this server, and a cache in `cache`.
    pub(super) fn run(&self, mut command: Command, cache: &std::path::Path) -> Finished {
        equip(&mut command, &self.endpoint, cache).output().unwrap().into()
    }
}

/// Lets a command find this server, and its cache in `cache`.
pub(super) fn equip<'a>(
    command: &'a mut Command,
    endpoint: &str,
    cache: &std::path::Path,
) -> &'a mut Command {
    command
        .env("AWS_ENDPOINT_URL", endpoint)
        .env("AWS_ACCESS_KEY_ID", "planted-identity")
        .env("AWS_SECRET_ACCESS_KEY", "planted-secret")
        .env("XDG_CACHE_HOME", cache)
}

impl Drop for S3 {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
