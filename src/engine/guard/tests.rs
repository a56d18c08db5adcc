use proptest::prelude::*;
use unicode_normalization::UnicodeNormalization;

use super::*;

fn all(pairs: &[(&str, &str)], expected: Difference) {
    for (a, b) in pairs {
        assert_eq!(difference(a, b), expected, "{a:?} / {b:?}");
        assert_eq!(difference(b, a), expected, "{b:?} / {a:?}");
    }
}

#[test]
fn the_same_said_again_has_no_difference() {
    all(
        &[
            ("I like tea.", "i LIKE tea!"),
            ("Maria lives in Berlin", "MARIA LIVES IN BERLIN"),
            ("A man is slicing an onion", "The man slices the onion"),
            ("It costs 1,000 dollars", "It costs 1000 dollars"),
            ("Walk 5 km a day", "Walk 5 kilometres a day"),
            ("The call is at 3pm", "The call is at 15:00"),
            ("The call is at 9:00", "The call is at 09:00"),
            ("We met on 8 May 2023", "We met on 2023-05-08"),
            ("Two dogs play", "2 dogs play"),
            ("Порт ٨٠", "порт 80"),
            ("I like tea", "I like tea but coffee is fine, yet although I like tea"),
            ("I don't like tea", "I do not like tea"),
            ("He is not only tall", "He is tall"),
        ],
        Difference::None,
    );
}

#[test]
fn replaced_values_are_replacements() {
    all(
        &[
            ("The port is 8080", "The port is 8081"),
            ("memser listens on port 8080", "memser listens on port 8081"),
            ("The server uses Redis", "The server does not use Redis"),
            ("The man isn't talking", "The man is talking"),
            ("Ich mag Hunde", "Ich mag keine Hunde"),
            ("J'aime le fromage", "Je n'aime pas le fromage"),
            ("Me gusta el café", "No me gusta el café"),
            ("Он любит чай", "Он не любит чай"),
            ("我喜欢茶", "我不喜欢茶"),
            ("お茶が好きです", "お茶が好きではない"),
            ("My name is liguoyu", "My name is liguosong"),
            ("I live in Berlin now", "I live in Munich now"),
            ("I love Chinese food", "I hate Chinese food"),
            ("The flag is enabled", "The flag is disabled"),
            ("The deadline is Monday", "The deadline is Tuesday"),
            ("The call is at 3pm", "The call is at 4pm"),
            ("Deploy version v1.2.3", "Deploy version v1.2.4"),
            ("The config is in /etc/a.toml", "The config is in /etc/b.toml"),
            ("The temperature is 5 degrees", "The temperature is -5 degrees"),
            ("The run took 5 ms", "The run took 5 s"),
            ("The code word is \"alpha\"", "The code word is \"omega\""),
            ("We write it in C#", "We write it in C++"),
            ("port ٨٠٨٠ is open", "port 8081 is open"),
        ],
        Difference::Replacement,
    );
}

#[test]
fn additions_names_and_look_alikes_are_other() {
    all(
        &[
            ("I have dogs", "I have 2 dogs"),
            ("We met Caroline at the zoo", "We met Melanie at the zoo"),
            ("Caroline likes tea", "Melanie likes tea"),
            ("Caroline has 2 dogs", "Melanie has 3 dogs"),
            ("i met jon at the bar", "i met joan at the bar"),
            ("I met John Smyth", "I met John Smith"),
            ("Copy 5 files to 8 hosts", "Copy 8 files to 5 hosts"),
            ("Yesterday 86 percent of voters said yes", "In Jordan 1 percent favoured the plan"),
        ],
        Difference::Other,
    );
}

#[test]
fn numbers_that_label_things_do_not_replace_each_other() {
    for (old, new) in [
        ("durable fact number 1", "durable fact number 2"),
        ("Step 3: drain the pool", "Step 4: drain the pool"),
        ("Order 1041 was shipped to Berlin", "Order 1042 was shipped to Berlin"),
        ("Issue #7 is about recall", "Issue #8 is about recall"),
    ] {
        assert_eq!(difference(old, new), Difference::Other, "{old} / {new}");
    }
    let (old, new) = ("The server listens on port 8080", "The server listens on port 8081");
    assert_eq!(difference(old, new), Difference::Replacement);
}

#[test]
fn a_longer_text_contains_a_shorter_one() {
    assert!(is_containment("I like tea", "I like tea, prefer coffee, and never drink juice"));
    assert!(!is_containment("I like green tea", "I like tea"));
    assert!(!is_containment("", ""));
}

proptest! {
    #[test]
    fn symmetric(a in "\\PC{0,40}", b in "\\PC{0,40}") {
        prop_assert_eq!(difference(&a, &b), difference(&b, &a));
    }

    #[test]
    fn a_text_does_not_differ_from_itself(text in "\\PC{0,60}") {
        prop_assert_eq!(difference(&text, &text), Difference::None);
    }

    #[test]
    fn a_changed_number_is_always_seen(
        before in "[a-z ]{0,20}", after in "[a-z ]{0,20}", a in 0_u64..1_000_000, b in 0_u64..1_000_000
    ) {
        prop_assume!(a != b);
        let text = |n: u64| format!("{before} {n} {after}");
        prop_assert_ne!(difference(&text(a), &text(b)), Difference::None);
    }

    #[test]
    fn form_and_space_do_not_matter(
        words in prop::collection::vec("[a-zäöüé]{1,8}|[0-9]{1,4}|not", 1..8),
        others in prop::collection::vec("[a-zäöüé]{1,8}|[0-9]{1,4}|not", 1..8),
    ) {
        let (a, b) = (words.join(" "), others.join(" "));
        let reformed: String = words.join("  \n").nfd().collect();
        prop_assert_eq!(difference(&a, &b), difference(&reformed, &b));
    }
}
