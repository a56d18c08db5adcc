//! A Telegram bot that remembers what people say. Each chat is a scope of memser, `telegram:` and the chat's id.
//!
//! Updates are handled one after the other, and Telegram is told of one only by the next request for updates: one that
//! was not stored comes again, after a restart of the bot as well.

mod chat;
mod memory;
mod retry;
mod text;

use std::future::Future;
use std::time::Duration;

use anyhow::{Context, Result};
use teloxide_core::requests::{Request, Requester};
use teloxide_core::types::{AllowedUpdate, Update};
use teloxide_core::{Bot, RequestError, payloads::GetUpdatesSetters};
use tracing::warn;

pub use memory::Memory;
use retry::Retry;

/// How long a request for updates waits for one, in seconds; below the time-out of the Bot's HTTP client.
const LONG_POLL_SECONDS: u32 = 10;
/// The first pause before Telegram is asked again after a failure.
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// Answers updates until it fails.
///
/// `patience` is how long one request to Telegram, or one call of memser, is repeated while it fails.
///
/// # Errors
/// When Telegram or memser is away for longer than `patience`, or refuses the token. What was under way comes again
/// at the next start.
pub async fn run(bot: &Bot, memory: &mut Memory, patience: Duration) -> Result<()> {
    let me = repeated(patience, || bot.get_me().send()).await?;
    let mut offset = 0;
    loop {
        let updates: Vec<Update> = repeated(patience, || {
            let wanted = [AllowedUpdate::Message, AllowedUpdate::EditedMessage];
            bot.get_updates().offset(offset).timeout(LONG_POLL_SECONDS).allowed_updates(wanted).send()
        })
        .await?;
        for update in updates {
            offset = update.id.as_offset();
            if chat::forgets(me.username(), &update) {
                // Done again, it would forget the next best memory: Telegram is told first. What this fetches comes again.
                repeated(patience, || bot.get_updates().offset(offset).limit(1).timeout(0).send()).await?;
            }
            let Some((chat, answer)) = chat::answer(memory, me.username(), update).await? else { continue };
            for part in text::parts(&answer) {
                match repeated(patience, || bot.send_message(chat, part).send()).await {
                    Ok(_) => {}
                    // Somebody blocked the bot, or the group is gone: no reason to stop for the others.
                    Err(error) if error.downcast_ref::<RequestError>().is_some_and(is_refusal) => {
                        warn!(chat.id = chat.0, "Telegram does not take an answer for a chat");
                        break;
                    }
                    Err(error) => return Err(error),
                }
            }
        }
    }
}

/// Whether Telegram answered, and will not answer otherwise.
fn is_refusal(error: &RequestError) -> bool {
    matches!(error, RequestError::Api(_) | RequestError::MigrateToChatId(_))
}

/// Makes a request until it succeeds, for as long as `patience`; waits as Telegram asks.
async fn repeated<T, F>(patience: Duration, request: impl Fn() -> F) -> Result<T>
where
    F: Future<Output = Result<T, RequestError>>,
{
    let mut retry = Retry::new(patience, FIRST_PAUSE);
    loop {
        // Never the error's own text: it may hold what people wrote.
        let (asked, what) = match request().await {
            Ok(answer) => return Ok(answer),
            Err(RequestError::RetryAfter(seconds)) => (Some(seconds.duration()), "Telegram is busy"),
            Err(RequestError::Network(_)) => (None, "Telegram is not reached"),
            Err(error) if is_refusal(&error) => {
                return Err(error).context("Telegram refuses a request");
            }
            Err(_) => (None, "Telegram answers what is no answer of the Bot API"),
        };
        retry.wait(asked, what, "asking").await?;
    }
}
