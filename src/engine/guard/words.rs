//! The closed word lists of the guard, all in folded form.

use std::{collections::HashMap, sync::LazyLock};

static BY_SPELLING: LazyLock<[HashMap<&'static str, &'static str>; 2]> = LazyLock::new(|| {
    [UNITS, DATES].map(|table| {
        let spellings = |(name, spellings): &(&'static str, &[&'static str])| {
            spellings.iter().map(|spelling| (*spelling, *name)).collect::<Vec<_>>()
        };
        table.iter().flat_map(spellings).collect()
    })
});

static NUMBER_WORDS: LazyLock<HashMap<&'static str, u32>> =
    LazyLock::new(|| NUMBERS.iter().copied().collect());

/// The canonical unit of a spelling.
pub(super) fn unit(word: &str) -> Option<&'static str> {
    BY_SPELLING[0].get(word).copied()
}

/// The canonical month, weekday or time of day of a spelling.
pub(super) fn date(word: &str) -> Option<&'static str> {
    BY_SPELLING[1].get(word).copied()
}

/// What kind of date a canonical one is: only dates of one kind stand in place of each other, because "tomorrow" may well
/// be Thursday.
pub(super) fn date_kind(date: &str) -> usize {
    let place = DATES.iter().position(|(name, _)| *name == date).unwrap_or(DATES.len());
    [FIRST_WEEKDAY, FIRST_DAY, FIRST_TIME].iter().filter(|first| place >= **first).count()
}

/// What a unit measures: only measures of one kind stand in place of each other.
pub(super) fn dimension(unit: &'static str) -> &'static str {
    match unit {
        "km" | "m" | "cm" | "mm" | "mi" | "ft" | "in" => "length",
        "kg" | "g" | "mg" | "lb" | "oz" => "weight",
        "l" | "ml" => "volume",
        "ns" | "us" | "ms" | "s" | "min" | "h" | "day" | "week" | "month" | "year" => "duration",
        "kb" | "mb" | "gb" | "tb" => "data",
        "$" | "€" | "£" => "money",
        "°" | "°c" | "°f" => "temperature",
        "k" | "million" | "billion" => "count",
        unit => unit,
    }
}

/// The value of a number word.
pub(super) fn number(word: &str) -> Option<u32> {
    NUMBER_WORDS.get(word).copied()
}

/// Words that negate, in English, German, Dutch, French, Spanish, Italian, Portuguese, Russian, Arabic and a few of other
/// languages. A word that
/// means something else in another language costs nothing: it only counts where the other text lacks it.
#[rustfmt::skip]
pub(super) const NEGATIONS: &[&str] = &[
    "not", "no", "never", "none", "nobody", "nothing", "nowhere", "neither", "nor", "without", "cannot", "dont",
    "doesnt", "didnt", "isnt", "arent", "wasnt", "werent", "wont", "cant", "couldnt", "wouldnt", "shouldnt", "hasnt",
    "havent", "hadnt", // en
    "nicht", "kein", "keine", "keinen", "keinem", "keiner", "keines", "nie", "niemals", "nichts", "niemand", "ohne",
    "niet", "geen", "nooit", "niets", "zonder", // de, nl
    "pas", "jamais", "rien", "aucun", "aucune", "sans", // fr: the second half of the pair, which speech keeps
    "nunca", "jamás", "nada", "nadie", "ningún", "ninguno", "ninguna", "sin", "tampoco", // es
    "non", "niente", "nulla", "nessuno", "nessuna", "senza", // it
    "não", "ninguém", "nenhum", "nenhuma", "sem", "jamais", // pt
    "не", "нет", "ни", "никогда", "ничего", "никто", "без", // ru
    "لا", "ليس", "ليست", "لم", "لن", "بدون", "غير", // ar
    "bez", "nigdy", "nikt", "değil", "yok", "नहीं", // pl, tr, hi
];

/// Words that bring a second statement beside the first one, which a text without it does not make.
#[rustfmt::skip]
pub(super) const CONTRASTS: &[&str] = &[
    "but", "although", "though", "however", "except", "unless", "instead", "aber", "sondern", "obwohl", "außer", "ausser",
    "maar", "behalve", "mais", "sauf", "pero", "aunque", "salvo", "però", "tranne", "porém", "exceto", "но", "однако", "хотя",
];

/// Words before a number that tells one thing from another of its kind: "step 2" corrects "step 1" as little as
/// "order 1042" corrects "order 1041".
pub(super) const LABELLED: &[&str] = &[
    "case",
    "chapter",
    "document",
    "entry",
    "episode",
    "event",
    "exercise",
    "fact",
    "figure",
    "id",
    "invoice",
    "issue",
    "item",
    "lesson",
    "line",
    "memory",
    "message",
    "no",
    "note",
    "nr",
    "number",
    "option",
    "order",
    "page",
    "part",
    "phase",
    "player",
    "pr",
    "question",
    "record",
    "round",
    "row",
    "run",
    "section",
    "session",
    "step",
    "table",
    "task",
    "test",
    "ticket",
    "turn", // English
    "artikel",
    "fall",
    "kapitel",
    "nummer",
    "punkt",
    "schritt",
    "seite",
    "zeile", // German
    "chapitre",
    "ligne",
    "numéro",
    "étape", // French
    "capítulo",
    "capitolo",
    "numero",
    "número",
    "página",
    "pagina",
    "paso",
    "passo",
    "stap", // es, it, pt, nl
];

/// Forms of "to be" before a participle.
pub(super) const BE: &[&str] = &["is", "are", "was", "were", "be", "been", "being", "am"];

/// Words that a sentence needs by its grammar and that say nothing: with or without them, it is the same statement. The
/// past tense is not among them ("was" is no longer), nor are pronouns and prepositions of place and time.
#[rustfmt::skip]
pub(super) const GRAMMAR: &[&str] = &[
    "a", "an", "the", "some", "is", "are", "am", "be", "being", "been", "that", "which", "who", "by", "of", "for", "and", "so",
    "please", "also",
];

/// What follows a negation that does not negate: `not only`, `no problem`, `can't wait`.
#[rustfmt::skip]
pub(super) const NOT_NEGATED: &[&str] = &[
    "only", "just", "merely", "doubt", "sooner", "worries", "problem", "wait", "nur", "solo", "sólo", "только",
];

/// Chinese and Japanese negations, which are no words of their own.
pub(super) const NEGATION_SIGNS: &[&str] =
    &["不", "没", "沒", "无", "無", "未", "ない", "なかっ", "なく", "ません", "않", "없"];

/// Words that hold such a sign without negating.
pub(super) const NO_NEGATION_SIGNS: &[&str] = &[
    "不过",
    "不過",
    "不仅",
    "不僅",
    "不但",
    "不错",
    "不錯",
    "差不多",
    "不管",
    "不断",
    "不斷",
    "未来",
    "未來",
    "少ない",
    "無料",
    "无线",
];

/// Number words; a ten and a unit add up. `one` is left to [`super::facts`], because it is a pronoun too.
#[rustfmt::skip]
const NUMBERS: &[(&str, u32)] = &[
    ("zero", 0), ("two", 2), ("three", 3), ("four", 4), ("five", 5), ("six", 6), ("seven", 7), ("eight", 8),
    ("nine", 9), ("ten", 10), ("eleven", 11), ("twelve", 12), ("thirteen", 13), ("fourteen", 14), ("fifteen", 15),
    ("sixteen", 16), ("seventeen", 17), ("eighteen", 18), ("nineteen", 19), ("twenty", 20), ("thirty", 30),
    ("forty", 40), ("fifty", 50), ("sixty", 60), ("seventy", 70), ("eighty", 80), ("ninety", 90), ("first", 1),
    ("second", 2), ("third", 3), ("fourth", 4), ("fifth", 5), ("sixth", 6), ("seventh", 7), ("eighth", 8),
    ("ninth", 9), ("tenth", 10), ("twice", 2),
    ("zwei", 2), ("drei", 3), ("vier", 4), ("fünf", 5), ("sechs", 6), ("sieben", 7), ("acht", 8), ("neun", 9),
    ("zehn", 10), ("deux", 2), ("trois", 3), ("quatre", 4), ("cinq", 5), ("sept", 7), ("huit", 8), ("neuf", 9),
    ("dix", 10), ("dos", 2), ("tres", 3), ("cuatro", 4), ("cinco", 5), ("seis", 6), ("siete", 7), ("ocho", 8),
    ("nueve", 9), ("diez", 10), ("два", 2), ("две", 2), ("три", 3), ("четыре", 4), ("пять", 5), ("шесть", 6),
    ("семь", 7), ("восемь", 8), ("девять", 9), ("десять", 10),
];

/// Han numerals; a bare `一` is left out as too common inside words.
pub(super) const HAN_NUMERALS: &str = "二三四五六七八九十百千万萬億亿两兩";

/// Units that belong to the number before them, by their spellings.
#[rustfmt::skip]
const UNITS: &[(&str, &[&str])] = &[
    ("km", &["km", "kilometre", "kilometres", "kilometer", "kilometers"]),
    ("m", &["m", "metre", "metres", "meter", "meters"]),
    ("cm", &["cm", "centimetre", "centimetres", "centimeter", "centimeters"]),
    ("mm", &["mm", "millimetre", "millimetres", "millimeter", "millimeters"]),
    ("mi", &["mi", "mile", "miles"]),
    ("ft", &["ft", "foot", "feet"]),
    ("in", &["inch", "inches"]),
    ("kg", &["kg", "kilo", "kilos", "kilogram", "kilograms"]),
    ("g", &["g", "gram", "grams"]),
    ("mg", &["mg", "milligram", "milligrams"]),
    ("lb", &["lb", "lbs"]),
    ("oz", &["oz", "ounce", "ounces"]),
    ("l", &["l", "litre", "litres", "liter", "liters"]),
    ("ml", &["ml"]),
    ("ns", &["ns", "nanosecond", "nanoseconds"]),
    ("us", &["us", "μs", "microsecond", "microseconds"]),
    ("ms", &["ms", "millisecond", "milliseconds"]),
    ("s", &["s", "sec", "secs", "second", "seconds"]),
    ("min", &["min", "mins", "minute", "minutes"]),
    ("h", &["h", "hr", "hrs", "hour", "hours"]),
    ("day", &["d", "day", "days"]),
    ("week", &["w", "week", "weeks"]),
    ("month", &["month", "months"]),
    ("year", &["year", "years"]),
    ("kb", &["kb", "kib", "kilobyte", "kilobytes"]),
    ("mb", &["mb", "mib", "megabyte", "megabytes"]),
    ("gb", &["gb", "gib", "gigabyte", "gigabytes"]),
    ("tb", &["tb", "tib", "terabyte", "terabytes"]),
    ("%", &["%", "percent", "pct"]),
    ("$", &["$", "dollar", "dollars", "usd"]),
    ("€", &["€", "euro", "euros", "eur"]),
    ("£", &["£", "gbp"]),
    ("°", &["°", "degree", "degrees"]),
    ("°c", &["°c", "celsius"]),
    ("°f", &["°f", "fahrenheit"]),
    ("k", &["k", "thousand"]),
    ("million", &["million", "mio"]),
    ("billion", &["bn", "billion"]),
    ("am", &["am", "a.m"]),
    ("pm", &["pm", "p.m"]),
];

/// Where the weekdays, the days and the times of day begin in [`DATES`], which begins with the twelve months.
const FIRST_WEEKDAY: usize = 12;
const FIRST_DAY: usize = FIRST_WEEKDAY + 7;
const FIRST_TIME: usize = FIRST_DAY + 3;

/// Months, weekdays, days and times of day, by their spellings. Short forms that are words (`mar`, `sun`) and
/// the month `may`, which [`super::facts`] reads by its neighbours, are left out.
#[rustfmt::skip]
const DATES: &[(&str, &[&str])] = &[
    ("january", &["january", "jan", "januar", "janvier", "enero", "января", "gennaio", "janeiro", "januari",
        "январь", "январе"]),
    ("february", &["february", "feb", "februar", "février", "febrero", "февраля", "febbraio", "fevereiro",
        "februari", "февраль", "феврале"]),
    ("march", &["märz", "mars", "marzo", "марта", "março", "maart", "март", "марте"]),
    ("april", &["april", "apr", "avril", "abril", "апреля", "aprile", "апрель", "апреле"]),
    ("may", &["mai", "mayo", "мая", "maggio", "maio", "mei", "май", "мае"]),
    ("june", &["june", "jun", "juni", "juin", "junio", "июня", "giugno", "junho", "июнь", "июне"]),
    ("july", &["july", "jul", "juli", "juillet", "julio", "июля", "luglio", "julho", "июль", "июле"]),
    ("august", &["august", "aug", "août", "agosto", "августа", "augustus", "август", "августе"]),
    ("september", &["september", "sep", "sept", "septembre", "septiembre", "сентября", "settembre", "setembro",
        "сентябрь", "сентябре"]),
    ("october", &["october", "oct", "oktober", "octobre", "octubre", "октября", "ottobre", "outubro", "октябрь",
        "октябре"]),
    ("november", &["november", "nov", "novembre", "noviembre", "ноября", "novembro", "ноябрь", "ноябре"]),
    ("december", &["december", "dec", "dezember", "décembre", "diciembre", "декабря", "dicembre", "dezembro",
        "декабрь", "декабре"]),
    ("monday", &["monday", "mon", "mondays", "montag", "lundi", "lunes", "lunedì", "maandag", "понедельник"]),
    ("tuesday", &["tuesday", "tue", "tues", "tuesdays", "dienstag", "mardi", "martes", "martedì", "dinsdag",
        "вторник"]),
    ("wednesday", &["wednesday", "wed", "wednesdays", "mittwoch", "mercredi", "miércoles", "mercoledì", "woensdag",
        "среда", "среду"]),
    ("thursday", &["thursday", "thu", "thurs", "thursdays", "donnerstag", "jeudi", "jueves", "giovedì", "donderdag",
        "четверг"]),
    ("friday", &["friday", "fri", "fridays", "freitag", "vendredi", "viernes", "venerdì", "vrijdag", "пятница",
        "пятницу"]),
    ("saturday", &["saturday", "saturdays", "samstag", "samedi", "sábado", "sabato", "zaterdag", "суббота", "субботу"]),
    ("sunday", &["sunday", "sundays", "sonntag", "dimanche", "domingo", "domenica", "zondag", "воскресенье"]),
    ("today", &["today", "heute", "hoy", "сегодня", "oggi", "hoje", "vandaag", "aujourd'hui"]),
    ("tomorrow", &["tomorrow", "morgen", "demain", "mañana", "завтра", "domani", "amanhã"]),
    ("yesterday", &["yesterday", "gestern", "hier", "ayer", "вчера", "ieri", "ontem", "gisteren"]),
    ("morning", &["morning", "mornings"]),
    ("afternoon", &["afternoon", "afternoons"]),
    ("evening", &["evening", "evenings"]),
    ("night", &["night", "nights"]),
    ("tonight", &["tonight"]),
    ("noon", &["noon"]),
    ("midnight", &["midnight"]),
];

/// Words of which only one holds at a time. Verbs and adjectives of general English; not a thesaurus.
#[rustfmt::skip]
pub(super) const OPPOSITES: &[(&str, &str)] = &[
    ("love", "hate"), ("like", "hate"), ("like", "dislike"), ("love", "dislike"), ("enjoy", "hate"),
    ("enabled", "disabled"), ("enable", "disable"), ("on", "off"), ("open", "closed"), ("open", "close"),
    ("true", "false"), ("always", "never"), ("before", "after"), ("up", "down"), ("more", "less"),
    ("increase", "decrease"), ("with", "without"), ("start", "stop"), ("allow", "deny"), ("allow", "forbid"),
    ("allowed", "forbidden"), ("accept", "reject"), ("single", "married"), ("married", "divorced"),
    ("alive", "dead"), ("hot", "cold"), ("buy", "sell"), ("minimum", "maximum"), ("min", "max"), ("male", "female"),
    ("empty", "full"), ("agree", "disagree"), ("possible", "impossible"), ("public", "private"),
    ("required", "optional"), ("active", "inactive"), ("happy", "unhappy"), ("safe", "unsafe"), ("win", "lose"),
    ("right", "wrong"), ("early", "late"), ("last", "next"), ("big", "small"), ("old", "young"), ("old", "new"), ("high", "low"),
    ("fast", "slow"), ("inside", "outside"), ("asleep", "awake"), ("present", "absent"), ("online", "offline"),
    ("top", "bottom"), ("left", "right"), ("above", "below"), ("north", "south"), ("east", "west"), ("upstairs", "downstairs"),
    ("indoors", "outdoors"), ("upper", "lower"), ("forward", "backward"), ("uphill", "downhill"),
];

/// Words that announce the one value an attribute has at a time, so that another name there is a correction and
/// not merely another fact: `my name is`, `lives in`, `works at`.
#[rustfmt::skip]
pub(super) const SINGLE_VALUED: &[&str] = &[
    "name", "named", "called", "surname", "nickname", "username", "email", "address", "phone", "birthday",
    "password", "favourite", "favorite", "default", "current", "currently", "capital", "timezone", "employer",
    "boss", "manager", "husband", "wife", "spouse", "partner", "hometown", "deadline", "branch", "host",
    "database", "live", "lives", "living", "work", "works", "working", "born", "married", "located", "based",
    "hosted", "moved", "heiße", "heisse", "wohne", "wohnt", "arbeite", "arbeitet", "llamo", "vivo", "trabajo",
    "appelle", "habite", "travaille", "зовут", "живу", "живет", "работаю",
];
