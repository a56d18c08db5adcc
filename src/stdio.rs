//! MCP over standard input and output, one JSON-RPC message a line, for clients that start a command.
//!
//! Each message is passed on to an MCP endpoint over streamable HTTP, in this process or elsewhere ([`Upstream`]), and what
//! that answers is written as lines. Nothing else is: whatever goes wrong on the way is the error of the request.

mod calls;
mod message;
mod pipe;
mod upstream;

use std::time::Duration;

use self::calls::Calls;
use self::message::Message;
use self::pipe::{Reader, Writer};
pub use self::upstream::Upstream;

/// Serves until standard input ends, standard output is closed, or `stop` resolves. What is under way then has `patience`
/// to be answered; the rest is answered with an error.
pub async fn serve(upstream: Upstream, patience: Duration, stop: impl Future<Output = ()> + Send) {
    let (mut reader, writer) = (Reader::start(), Writer::start());
    let mut calls = Calls::new(upstream, writer.lines());
    let mut stop = std::pin::pin!(stop);
    loop {
        tokio::select! {
            () = &mut stop => break,
            () = writer.closed() => break,
            () = calls.ended() => {}
            line = reader.next() => match line {
                Some(line) if line.trim_ascii().is_empty() => {}
                Some(line) => match Message::parse(&line) {
                    Ok(message) => calls.take(message).await,
                    Err(error) => writer.write(&error).await,
                },
                None => break,
            }
        }
    }
    calls.finish(patience).await;
    writer.finish().await;
}
