//! The bot between a fake Telegram and a real memser. It needs memser's debug build: `make interop` makes it first.
#![expect(clippy::unwrap_used, reason = "a test fails by it")]

mod support;

use support::{BOT_TOKEN, Bot, Memser, Telegram};

const ADA: i64 = 42;
const TEAM: i64 = -100_200_300;

#[tokio::test]
async fn a_chat_is_remembered_listed_and_forgotten_and_no_other_sees_it() {
    let (telegram, mut memser) = (Telegram::start().await, Memser::start(&[]).await);
    let bot = Bot::start(&telegram, &memser);
    telegram.write(ADA, "My cat is called *Byron*.");
    telegram.write(TEAM, "The release review is on Thursdays.");

    let about = telegram.ask(ADA, "/recall cat").await.concat();
    // As it was written: nothing in it is markup.
    assert!(about.contains("Ada: My cat is called *Byron*."), "{about}");
    assert!(!about.contains("release"), "{about}");
    let about = telegram.ask(TEAM, "/recall@memser_bot review").await.concat();
    assert!(about.contains("Thursdays") && !about.contains("cat"), "{about}");
    assert_eq!(telegram.ask(TEAM, "/recall@other_bot review").await, Vec::<String>::new());
    assert!(telegram.ask(ADA, "/help").await.concat().contains("/forget"));

    // No word of it is known: nothing goes.
    let nothing = telegram.ask(ADA, "/forget submarines").await.concat();
    assert!(nothing.contains("nothing is forgotten"), "{nothing}");
    let gone = telegram.ask(ADA, "/forget cat").await;
    assert_eq!(gone, ["Forgotten: Ada: My cat is called *Byron*."]);
    assert_eq!(telegram.ask(ADA, "/memories").await, ["I remember nothing yet."]);
    let id = telegram.ask(TEAM, "/memories").await.concat();
    let id = id.split_once('(').unwrap().1.trim_end_matches(')').to_owned();
    // Another chat's memory is none.
    let foreign = telegram.ask(ADA, &format!("/forget {id}")).await.concat();
    assert!(!foreign.contains("Thursdays"), "{foreign}");
    let gone = telegram.ask(TEAM, &format!("/forget {id}")).await;
    assert_eq!(gone, ["Forgotten: Ada: The release review is on Thursdays."]);

    bot.kill().await;
    memser.end().await;
}

#[tokio::test]
async fn pages_follow_each_other_and_long_answers_are_split() {
    let (telegram, mut memser) = (Telegram::start().await, Memser::start(&[]).await);
    let bot = Bot::start(&telegram, &memser);
    let topics = [
        "apple", "boat", "candle", "drum", "eagle", "forest", "guitar", "harbour", "island", "jacket",
        "kettle", "lamp",
    ];
    for topic in topics {
        telegram.write(ADA, &format!("{topic} {}", format!("{topic}s ").repeat(100)));
    }
    let first = telegram.ask(ADA, "/memories").await;
    assert!(first.len() > 1 && first.iter().all(|part| part.encode_utf16().count() <= 4096), "{first:?}");
    let first = first.concat();
    let cursor = first.rsplit_once("More: ").unwrap().1;
    let second = telegram.ask(ADA, cursor).await.concat();
    assert!(!second.contains("More: "), "{second}");
    for (at, topic) in topics.iter().enumerate() {
        let said = format!("Ada: {topic} ");
        // Newest first: the two oldest are on the second page.
        assert_eq!((first.contains(&said), second.contains(&said)), (at >= 2, at < 2), "{topic}");
    }
    bot.kill().await;
    memser.end().await;
}

#[tokio::test]
async fn an_edit_takes_the_place_of_its_message_and_nothing_doubles_when_it_comes_again() {
    let (telegram, mut memser) = (Telegram::start().await, Memser::start(&[]).await);
    let bot = Bot::start(&telegram, &memser);
    let message = telegram.write(ADA, "The keys are in the blue drawer.");
    let edit = telegram.edit(ADA, message, "The keys are beneath the doormat.");
    telegram.until_acknowledged(edit).await;
    bot.kill().await;

    telegram.deliver_again(message);
    let bot = Bot::start(&telegram, &memser);
    let known = telegram.ask(ADA, "/memories").await.concat();
    assert_eq!(known.matches("keys").count(), 1, "{known}");
    assert!(known.contains("doormat"), "{known}");
    // Nor does it count as said again, neither as it was nor as it is.
    let supports = memser.supports("telegram:42").await;
    assert_eq!(supports, [1, 1]);
    bot.kill().await;
    memser.end().await;
}

#[tokio::test]
async fn what_is_said_while_memser_is_away_is_stored_in_order_once_it_is_back() {
    let (telegram, mut memser) = (Telegram::start().await, Memser::start(&[]).await);
    let mut bot = Bot::start(&telegram, &memser);
    let before = telegram.write(ADA, "Rome has seven hills.");
    telegram.until_acknowledged(before).await;

    memser.end().await;
    let first = telegram.write(ADA, "Violins have four strings.");
    telegram.write(ADA, "Spiders walk on eight legs.");
    bot.until_logged("calling store_memory again").await;
    assert!(!telegram.acknowledged(first));
    memser.begin().await;

    let known = telegram.ask(ADA, "/memories").await.concat();
    let places = ["Spiders", "Violins", "Rome"].map(|word| known.find(word).unwrap());
    assert!(places.is_sorted(), "{known}");
    assert!(["Violins", "Spiders"].iter().all(|word| known.matches(word).count() == 1), "{known}");

    let log = bot.log();
    assert!(!log.contains(BOT_TOKEN) && !log.contains(&memser.token()) && !log.contains("Violins"), "{log}");
    bot.kill().await;
    memser.end().await;
}

#[tokio::test]
async fn the_bot_waits_where_telegram_or_memser_says_so() {
    // As many requests as a new connection takes; then one a second.
    let limits = [("MEMSER_RATE_LIMIT", "1"), ("MEMSER_RATE_BURST", "3")];
    let (telegram, mut memser) = (Telegram::start().await, Memser::start(&limits).await);
    let bot = Bot::start(&telegram, &memser);
    telegram.write(ADA, "Rome has seven hills.");
    telegram.write(ADA, "Violins have four strings.");
    telegram.write(ADA, "Spiders walk on eight legs.");
    telegram.refuse(1);
    let known = telegram.ask(ADA, "/memories").await;
    assert_eq!(telegram.refused(), 1);
    assert_eq!(known.len(), 1, "{known:?}");
    assert!(known[0].contains("Rome") && known[0].contains("Spiders"), "{known:?}");

    let log = bot.log();
    assert!(log.contains("memser answers 429") && log.contains("Telegram is busy"), "{log}");
    assert!(!log.contains(BOT_TOKEN) && !log.contains("Spiders"), "{log}");
    bot.kill().await;
    memser.end().await;
}
