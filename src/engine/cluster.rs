//! Which memories speak of the same thing: greedy clustering that refuses chains.
//!
//! A is near B and B is near C does not make A and C one subject. So every step of the greedy merge, and every
//! member at the end, is held against the centroid and not against one neighbour.

use std::cmp::Ordering;

use uuid::Uuid;

/// One memory to cluster.
#[derive(Debug, Clone, PartialEq)]
pub struct Item {
    /// The memory; decides every tie, so that the order of the input does not matter.
    pub id: Uuid,
    /// L2-normalised; all items of one call have the same dimensions.
    pub vector: Vec<f32>,
    /// How many memories it stands for.
    pub weight: usize,
    /// Whether it is a fact. Two facts never meet in a cluster.
    pub is_fact: bool,
}

/// Groups items by similarity; returns indexes into `items`.
///
/// Edges of at least `threshold` are taken best first. Two clusters merge only while no more than a weight of `max_weight`
/// and no second fact result and the cosine of their centroids is at least `threshold` too. At the end members below
/// `threshold` to the centroid of their cluster are dropped, the worst one first, until none is left below, and what is left
/// alone is not returned.
///
/// Clusters are disjoint and do not depend on the order of `items`; members and clusters are sorted by id. The
/// cost is that of sorting the edges plus one dot product an edge.
#[must_use]
pub fn cluster(
    items: &[Item],
    neighbours: &[Vec<(usize, f32)>],
    threshold: f32,
    max_weight: usize,
) -> Vec<Vec<usize>> {
    let mut clusters = Clusters::of(items);
    for (a, b) in edges(items, neighbours, threshold) {
        clusters.merge(a, b, threshold, max_weight);
    }
    let mut out: Vec<Vec<usize>> = clusters
        .groups
        .into_iter()
        .filter(|group| !group.members.is_empty())
        .map(|group| without_outliers(items, group.members, threshold))
        .filter(|members| members.len() > 1)
        .collect();
    out.sort_by_key(|members| items[members[0]].id);
    out
}

/// Edges of at least `threshold`, best first, each once, in an order that only ids and similarities decide.
fn edges(items: &[Item], neighbours: &[Vec<(usize, f32)>], threshold: f32) -> Vec<(usize, usize)> {
    let mut edges: Vec<(usize, usize, f32)> = neighbours
        .iter()
        .enumerate()
        .flat_map(|(a, near)| near.iter().map(move |(b, similarity)| (a, *b, *similarity)))
        .filter(|(a, b, similarity)| a != b && *b < items.len() && *similarity >= threshold)
        .map(
            |(a, b, similarity)| {
                if items[a].id <= items[b].id { (a, b, similarity) } else { (b, a, similarity) }
            },
        )
        .collect();
    let ids = |edge: &(usize, usize, f32)| (items[edge.0].id, items[edge.1].id);
    // Each direction may come with its own rounding: of the two, the better stays.
    edges.sort_by(|a, b| ids(a).cmp(&ids(b)).then(b.2.total_cmp(&a.2)));
    edges.dedup_by_key(|edge| (edge.0, edge.1));
    edges.sort_by(|a, b| b.2.total_cmp(&a.2).then_with(|| ids(a).cmp(&ids(b))));
    edges.into_iter().map(|(a, b, _)| (a, b)).collect()
}

/// A growing cluster: members sorted by id and the sum of their vectors.
struct Group {
    members: Vec<usize>,
    sum: Vec<f32>,
    weight: usize,
    has_fact: bool,
}

struct Clusters<'a> {
    items: &'a [Item],
    groups: Vec<Group>,
    /// Item to group.
    home: Vec<usize>,
}

impl<'a> Clusters<'a> {
    fn of(items: &'a [Item]) -> Self {
        let groups = items.iter().enumerate().map(|(at, item)| Group {
            members: vec![at],
            sum: item.vector.clone(),
            weight: item.weight,
            has_fact: item.is_fact,
        });
        Self { items, groups: groups.collect(), home: (0..items.len()).collect() }
    }

    fn merge(&mut self, a: usize, b: usize, threshold: f32, max_weight: usize) {
        let (mut to, mut from) = (self.home[a], self.home[b]);
        let (one, other) = (&self.groups[to], &self.groups[from]);
        let (to_len, from_len) = (one.members.len(), other.members.len());
        if to == from
            || one.weight + other.weight > max_weight
            || (one.has_fact && other.has_fact)
            || is_below(cosine(&one.sum, &other.sum), threshold)
        {
            return;
        }
        // The smaller moves: no item moves more than log2(n) times.
        if to_len < from_len {
            (to, from) = (from, to);
        }
        let gone = Group { members: vec![], sum: vec![], weight: 0, has_fact: false };
        let Group { members, sum, weight, has_fact } = std::mem::replace(&mut self.groups[from], gone);
        for member in &members {
            self.home[*member] = to;
        }
        let group = &mut self.groups[to];
        group.members.extend(members);
        group.weight += weight;
        group.has_fact |= has_fact;
        group.sum.iter_mut().zip(&sum).for_each(|(total, part)| *total += part);
        let items = self.items;
        group.members.sort_by_key(|member| items[*member].id);
    }
}

/// Drops the member farthest from the centroid until all that remain are near it. Sums are built anew in id order,
/// so that rounding cannot depend on the order of merges.
fn without_outliers(items: &[Item], mut members: Vec<usize>, threshold: f32) -> Vec<usize> {
    while members.len() > 1 {
        let mut sum = vec![0.0_f32; items[members[0]].vector.len()];
        for member in &members {
            sum.iter_mut().zip(&items[*member].vector).for_each(|(total, part)| *total += part);
        }
        let far = members
            .iter()
            .enumerate()
            .map(|(at, member)| (at, cosine(&items[*member].vector, &sum)))
            .filter(|(_, similarity)| is_below(*similarity, threshold))
            .min_by(|a, b| a.1.total_cmp(&b.1));
        match far {
            Some((at, _)) => members.remove(at),
            None => break,
        };
    }
    members
}

/// NaN is below everything.
fn is_below(similarity: f32, threshold: f32) -> bool {
    !matches!(similarity.partial_cmp(&threshold), Some(Ordering::Greater | Ordering::Equal))
}

pub(super) fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// 0 when one of the vectors is zero.
fn cosine(a: &[f32], b: &[f32]) -> f32 {
    let norms = (dot(a, a) * dot(b, b)).sqrt();
    if norms > 0.0 { dot(a, b) / norms } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn item(n: u128, vector: &[f32]) -> Item {
        let norm = dot(vector, vector).sqrt();
        Item {
            id: Uuid::from_u128(n),
            vector: vector.iter().map(|x| x / norm).collect(),
            weight: 1,
            is_fact: false,
        }
    }

    /// A unit vector at this angle in degrees.
    fn at(n: u128, angle: f32) -> Item {
        item(n, &[angle.to_radians().cos(), angle.to_radians().sin()])
    }

    /// The `k` nearest others of each item with a cosine of at least `floor`, best first, ties by id.
    fn neighbours(items: &[Item], k: usize, floor: f32) -> Vec<Vec<(usize, f32)>> {
        let nearest = |at: usize| {
            let mut near: Vec<(usize, f32)> = (0..items.len())
                .filter(|other| *other != at)
                .map(|other| (other, dot(&items[at].vector, &items[other].vector)))
                .filter(|(_, similarity)| *similarity >= floor)
                .collect();
            near.sort_by(|a, b| b.1.total_cmp(&a.1).then(items[a.0].id.cmp(&items[b.0].id)));
            near.truncate(k);
            near
        };
        (0..items.len()).map(nearest).collect()
    }

    fn clusters(items: &[Item], threshold: f32) -> Vec<Vec<usize>> {
        cluster(items, &neighbours(items, 10, threshold), threshold, 50)
    }

    #[test]
    fn a_chain_does_not_become_one_cluster() {
        // Each is 30 degrees from the next; cos 30 = .87, cos 60 = .5.
        let items = [at(1, 0.0), at(2, 30.0), at(3, 60.0), at(4, 90.0)];
        assert_eq!(clusters(&items, 0.8), [vec![0, 1], vec![2, 3]]);
        // Diet, healthy food for basketball, school basketball.
        assert_eq!(clusters(&items[..3], 0.8), [vec![0, 1]]);
    }

    #[test]
    fn sizes_are_kept() {
        let items: Vec<Item> = (0_u8..10).map(|n| at(n.into(), f32::from(n))).collect();
        let near = neighbours(&items, 9, 0.5);
        assert!(cluster(&items, &near, 0.5, 4).iter().all(|members| (2..=4).contains(&members.len())));
        assert!(cluster(&[], &[], 0.5, 4).is_empty());
    }

    #[test]
    fn a_fact_counts_as_what_it_was_made_from_and_meets_no_other() {
        let fact = |n, angle| Item { weight: 3, is_fact: true, ..at(n, angle) };
        let items = [fact(1, 0.0), at(2, 1.0), at(3, 2.5), fact(4, 5.0)];
        let near = neighbours(&items, 9, 0.5);
        assert_eq!(cluster(&items, &near, 0.5, 20), [vec![0, 1, 2]]);
        assert_eq!(cluster(&items, &near, 0.5, 4), [vec![0, 1], vec![2, 3]]);
    }

    #[test]
    fn twins_are_found_and_strangers_left() {
        let items = [at(1, 0.0), at(2, 90.0), at(3, 1.0)];
        assert_eq!(clusters(&items, 0.9), [vec![0, 2]]);
    }

    fn any_items() -> impl Strategy<Value = Vec<Item>> {
        prop::collection::vec(prop::array::uniform4(-1_f32..1.0), 1..24).prop_map(|vectors| {
            let filled = vectors.into_iter().map(|[a, b, c, d]| [a + 1.5, b, c, d]);
            filled.zip(1..).map(|(vector, n)| item(n, &vector)).collect()
        })
    }

    proptest! {
        #[test]
        fn clusters_are_disjoint_and_tight(items in any_items(), threshold in 0.5_f32..0.99) {
            let found = clusters(&items, threshold);
            let mut all: Vec<usize> = found.concat();
            all.sort_unstable();
            prop_assert!(all.is_sorted_by(|a, b| a < b), "an item twice");
            for members in found {
                let mut sum = [0.0; 4];
                for member in &members {
                    sum.iter_mut().zip(&items[*member].vector).for_each(|(total, part)| *total += part);
                }
                for member in &members {
                    prop_assert!(cosine(&items[*member].vector, &sum) >= threshold);
                }
            }
        }

        #[test]
        fn the_order_of_the_input_does_not_matter(
            (items, shuffled) in any_items().prop_flat_map(|items| (Just(items.clone()), Just(items).prop_shuffle()))
        ) {
            let by_id = |items: &[Item]| -> Vec<Vec<Uuid>> {
                let found = clusters(items, 0.8);
                found.iter().map(|members| members.iter().map(|at| items[*at].id).collect()).collect()
            };
            prop_assert_eq!(by_id(&items), by_id(&shuffled));
        }
    }
}
