use proptest::prelude::*;

use super::*;

fn id(n: u128) -> Uuid {
    Uuid::from_u128(n)
}

fn candidate(n: u128, vector: Option<f32>, lexical: Option<f32>) -> Candidate {
    Candidate {
        id: id(n),
        vector,
        lexical,
        beside: Vec::new(),
        is_about: false,
        age_days: 1.0,
        access_count: 0,
        confidence: 0.5,
    }
}

fn ids(ranked: &[Scored]) -> Vec<Uuid> {
    ranked.iter().map(|scored| scored.id).collect()
}

fn default_rank(candidates: &[Candidate]) -> Vec<Scored> {
    rank(candidates, &Weights::default(), 30.0)
}

#[test]
fn a_perfect_hit_scores_one() {
    let mut best = candidate(1, Some(0.9), Some(12.0));
    best.beside.push(id(2));
    best.is_about = true;
    best.age_days = 0.0;
    best.access_count = 1_000;
    best.confidence = 1.0;
    let twin = candidate(2, Some(0.9), Some(12.0));
    let ranked = default_rank(&[twin, candidate(3, Some(0.1), Some(1.0)), best]);
    assert_eq!(ranked[0].id, id(1));
    assert!((ranked[0].score - 1.0).abs() < 1e-6);
}

#[test]
fn a_missing_arm_gives_its_weight_to_the_other() {
    let words_only = default_rank(&[candidate(1, None, Some(5.0)), candidate(2, None, Some(1.0))]);
    let both = default_rank(&[candidate(1, Some(0.9), Some(5.0)), candidate(2, Some(0.1), Some(1.0))]);
    assert!((words_only[0].score - both[0].score).abs() < 1e-6);
    assert!(words_only[0].why.vector.abs() < f32::EPSILON);
}

#[test]
fn a_neighbour_brings_in_what_neither_arm_saw() {
    let mut answer = candidate(2, None, None);
    answer.beside.push(id(1));
    let ranked = default_rank(&[candidate(1, Some(0.9), Some(9.0)), answer, candidate(3, None, None)]);
    assert_eq!(ids(&ranked), [id(1), id(2)]);
    assert!(ranked[1].why.neighbour > 0.0);
}

#[test]
fn ties_go_to_the_newer_then_to_the_smaller_id() {
    let mut old = candidate(1, Some(0.5), None);
    old.age_days = 9.0;
    let weights = Weights { recency: 0.0, ..Weights::default() };
    let ranked = rank(&[old, candidate(3, Some(0.5), None), candidate(2, Some(0.5), None)], &weights, 30.0);
    assert_eq!(ids(&ranked), [id(2), id(3), id(1)]);
}

#[test]
fn nan_is_missing_and_nothing_panics() {
    let mut broken = candidate(1, Some(f32::NAN), Some(f32::INFINITY));
    broken.age_days = f64::NAN;
    broken.confidence = f32::NAN;
    assert!(default_rank(&[broken.clone()]).is_empty());
    broken.vector = Some(0.3);
    assert!(default_rank(&[broken])[0].score.is_finite());
    let none = Weights {
        vector: f32::NAN,
        lexical: -1.0,
        neighbour: 0.0,
        subject: 0.0,
        recency: 0.0,
        frequency: 0.0,
        confidence: 0.0,
    };
    assert!(rank(&[candidate(1, Some(1.0), None)], &none, 0.0).is_empty());
}

fn signal(range: std::ops::Range<f32>) -> impl Strategy<Value = Option<f32>> {
    prop_oneof![1 => Just(None), 4 => range.prop_map(Some)]
}

prop_compose! {
    fn any_candidate(n: u128, of: u128)(
        vector in signal(-1.0..1.0), lexical in signal(0.0..30.0),
        beside in prop::collection::vec((0..of).prop_map(id), 0..3), is_about in any::<bool>(),
        age_days in -1.0_f64..4_000.0, access_count in -1_i64..10_000, confidence in 0_f32..=1.0,
    ) -> Candidate {
        Candidate { id: id(n), vector, lexical, beside, is_about, age_days, access_count, confidence }
    }
}

fn candidates() -> impl Strategy<Value = Vec<Candidate>> {
    (1_u128..12).prop_flat_map(|of| (0..of).map(|n| any_candidate(n, of)).collect::<Vec<_>>())
}

proptest! {
    #[test]
    fn scores_are_bounded_sorted_and_explained(candidates in candidates()) {
        let ranked = default_rank(&candidates);
        prop_assert!(ranked.is_sorted_by(|a, b| a.score >= b.score));
        for scored in &ranked {
            prop_assert!((0.0..=1.0).contains(&scored.score));
            prop_assert!((scored.why.sum() - scored.score).abs() < 1e-5);
        }
    }

    #[test]
    fn the_order_of_the_input_does_not_matter(
        (candidates, shuffled) in candidates().prop_flat_map(|c| (Just(c.clone()), Just(c).prop_shuffle()))
    ) {
        prop_assert_eq!(default_rank(&candidates), default_rank(&shuffled));
    }

    /// Neighbours aside, because a raised score is lent on purpose.
    #[test]
    fn a_better_signal_never_lowers_the_rank(
        candidates in candidates(), pick in any::<prop::sample::Index>(), raise in 0_f32..1.0, arm in 0..5
    ) {
        let mut candidates = candidates;
        for candidate in &mut candidates {
            candidate.beside.clear();
            candidate.vector = Some(candidate.vector.unwrap_or(-1.0));
            candidate.lexical = Some(candidate.lexical.unwrap_or(0.0));
        }
        let place = |candidates: &[Candidate], id: Uuid| ids(&default_rank(candidates)).iter().position(|&i| i == id);
        let pick = pick.index(candidates.len());
        let id = candidates[pick].id;
        let before = place(&candidates, id);
        let raised = &mut candidates[pick];
        match arm {
            0 => raised.vector = raised.vector.map(|vector| vector + raise),
            4 => raised.lexical = raised.lexical.map(|lexical| lexical + raise * 10.0),
            1 => raised.age_days -= f64::from(raise) * 10.0,
            2 => raised.access_count += 1,
            _ => raised.confidence = (raised.confidence + raise).min(1.0),
        }
        prop_assert!(place(&candidates, id) <= before);
    }
}
