//! The proxy: each connection of a client has one of its own to the server.

use std::collections::HashMap;
use std::io::{self, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::net::sockopt::set_socket_linger;

use crate::acceptor::Acceptor;
use crate::counts::Traffic;
use crate::fault::{RequestLine, StoreFault};
use crate::message::Message;

/// The longest that a server is waited for.
const PATIENCE: Duration = Duration::from_secs(120);

/// The time from half of a body to its reset.
const TEAR: Duration = Duration::from_millis(20);

/// The most answers to lists that are remembered.
const MOST_LISTS: usize = 1000;

/// The plan of a proxy.
type FaultPlan = Box<dyn Fn(&RequestLine) -> StoreFault + Send + Sync>;

/// A line between a client of S3 and its server.
#[derive(Debug)]
pub struct StoreProxy {
    shared: Arc<Shared>,
    acceptor: Acceptor,
}

struct Shared {
    server: SocketAddr,
    state: Mutex<State>,
    plan: Mutex<Arc<FaultPlan>>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "to {}", self.server)
    }
}

#[derive(Debug, Default)]
struct State {
    traffic: Traffic,
    number: u64,
    round_trip: Duration,
    /// The last answer of the server to each list.
    lists: HashMap<String, Message>,
}

impl StoreProxy {
    /// A line to the server at this address, on the loopback.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn start(server: SocketAddr) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            server,
            state: Mutex::default(),
            plan: Mutex::new(Arc::new(Box::new(|_| StoreFault::None))),
        });
        let line = Arc::clone(&shared);
        let acceptor = Acceptor::start(move |client| {
            // A connection that fails ends; the client has an error of its own.
            let _ = line.serve(&client);
        })?;
        Ok(Self { shared, acceptor })
    }

    /// The address for clients, as `AWS_ENDPOINT` takes it.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.acceptor.address())
    }

    /// The faults of all requests from now on.
    pub fn set_plan(&self, plan: impl Fn(&RequestLine) -> StoreFault + Send + Sync + 'static) {
        *self.shared.plan.lock() = Arc::new(Box::new(plan));
    }

    /// Each request and each connection takes this time more from now on.
    pub fn set_round_trip(&self, round_trip: Duration) {
        self.shared.state.lock().round_trip = round_trip;
    }

    /// The counts since the last call, or since the start.
    pub fn take_traffic(&self) -> Traffic {
        std::mem::take(&mut self.shared.state.lock().traffic)
    }
}

/// The course of a connection after a request.
enum Next {
    Request,
    End,
    Reset,
}

impl Shared {
    fn serve(&self, client: &TcpStream) -> io::Result<()> {
        self.state.lock().traffic.connections += 1;
        self.travel();
        let server = TcpStream::connect(self.server)?;
        server.set_nodelay(true)?;
        server.set_read_timeout(Some(PATIENCE))?;
        let (mut from_client, mut from_server) = (BufReader::new(client), BufReader::new(&server));
        while let Some(request) = Message::read_request(&mut from_client)? {
            match self.exchange(request, client, &mut from_server)? {
                Next::Request => {}
                Next::End => break,
                Next::Reset => {
                    set_socket_linger(client, Some(Duration::ZERO))?;
                    break;
                }
            }
        }
        Ok(())
    }

    /// The time of the way to the server and back.
    fn travel(&self) {
        let round_trip = self.state.lock().round_trip;
        if !round_trip.is_zero() {
            std::thread::sleep(round_trip);
        }
    }

    /// Carries out one request.
    fn exchange(
        &self,
        mut request: Message,
        client: &TcpStream,
        server: &mut BufReader<&TcpStream>,
    ) -> io::Result<Next> {
        let line = self.line(&request);
        let plan = Arc::clone(&self.plan.lock());
        let fault = plan(&line);
        self.state.lock().traffic.faults += u64::from(fault != StoreFault::None);
        self.travel();
        let key = format!("{}?{}", line.path, line.query);
        let unseen = match fault {
            StoreFault::ResetBefore => return Ok(Next::Reset),
            StoreFault::NoAnswer => {
                // Until the client gives up, or this line ends.
                let _ = { client }.read(&mut [0; 1]);
                return Ok(Next::End);
            }
            StoreFault::Status(status) => Some(Message::answer(status, "", b"")),
            StoreFault::Busy(seconds) => {
                let header = format!("Retry-After: {seconds}\r\n");
                Some(Message::answer(503, &header, b""))
            }
            StoreFault::Stale => self.state.lock().lists.get(&key).cloned(),
            _ => None,
        };
        if let Some(answer) = unseen {
            return self.answer(client, &answer, &request);
        }
        if fault == StoreFault::AlteredRequest {
            alter(&mut request.body);
        }
        let mut to_server = *server.get_ref();
        to_server.write_all(request.head.as_bytes())?;
        to_server.write_all(&request.body)?;
        let answer = Message::read_answer(server, &line.method)?;
        if line.is_list() {
            let lists = &mut self.state.lock().lists;
            if lists.len() < MOST_LISTS {
                lists.insert(key, answer.clone());
            }
        }
        self.deliver(fault, client, answer, &request)
    }

    /// Sends the server's answer, as the fault has it.
    fn deliver(
        &self,
        fault: StoreFault,
        client: &TcpStream,
        mut answer: Message,
        request: &Message,
    ) -> io::Result<Next> {
        match fault {
            StoreFault::Delay(delay) => std::thread::sleep(delay),
            StoreFault::LostAnswer => return Ok(Next::Reset),
            StoreFault::Torn if !answer.body.is_empty() => {
                self.send(client, answer.head.as_bytes())?;
                self.send(client, &answer.body[..answer.body.len() / 2])?;
                // What was sent may be lost with the reset, unless the client has it.
                std::thread::sleep(TEAR);
                return Ok(Next::Reset);
            }
            StoreFault::Altered => alter(&mut answer.body),
            StoreFault::Trickle(pieces, pause) => {
                self.send(client, answer.head.as_bytes())?;
                let len = answer.body.len().div_ceil(pieces.max(1) as usize).max(1);
                for piece in answer.body.chunks(len) {
                    std::thread::sleep(pause);
                    self.send(client, piece)?;
                }
                return Ok(after(&answer, request));
            }
            _ => {}
        }
        self.answer(client, &answer, request)
    }

    /// Counts a request.
    fn line(&self, request: &Message) -> RequestLine {
        let (method, target) = (request.word(0), request.word(1));
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let mut state = self.state.lock();
        state.number += 1;
        let by_method = state.traffic.requests.entry(method.to_owned());
        *by_method.or_default() += 1;
        state.traffic.sent_bytes += request.len();
        RequestLine {
            number: state.number,
            method: method.to_owned(),
            path: path.to_owned(),
            query: query.to_owned(),
        }
    }

    fn answer(&self, client: &TcpStream, answer: &Message, to: &Message) -> io::Result<Next> {
        let all = [answer.head.as_bytes(), &answer.body].concat();
        self.send(client, &all)?;
        Ok(after(answer, to))
    }

    fn send(&self, mut client: &TcpStream, bytes: &[u8]) -> io::Result<()> {
        self.state.lock().traffic.received_bytes += bytes.len() as u64;
        client.write_all(bytes)
    }
}

fn after(answer: &Message, request: &Message) -> Next {
    match answer.is_last() || request.is_last() {
        true => Next::End,
        false => Next::Request,
    }
}

fn alter(body: &mut [u8]) {
    let middle = body.len() / 2;
    if let Some(byte) = body.get_mut(middle) {
        *byte ^= 0x20;
    }
}
