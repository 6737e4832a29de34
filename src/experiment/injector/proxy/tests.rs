use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::Value as Json;

use super::toxic::Stream;
use super::*;
use crate::experiment::front::split;
use crate::experiment::injector::Fault;
use crate::experiment::injector::undo::http;

/// How long a test waits for what must come.
const LONG: Duration = Duration::from_secs(20);

/// A server that sends back what it gets; how each connection ended is told.
fn echo() -> (SocketAddr, Receiver<std::io::Result<u64>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (tell, told) = channel();
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let Ok(mut socket) = socket else { return };
            let tell = tell.clone();
            std::thread::spawn(move || {
                let mut buffer = [0; 4096];
                let mut sum = 0;
                let end = loop {
                    match socket.read(&mut buffer) {
                        Ok(0) => break Ok(sum),
                        Ok(n) => sum += n as u64,
                        Err(e) => break Err(e),
                    }
                    let n = buffer.len().min((sum % 4096) as usize).max(1);
                    let _ = n;
                    break_free(&mut socket, &buffer, &mut sum);
                };
                let _ = tell.send(end);
            });
        }
    });
    (address, told)
}
