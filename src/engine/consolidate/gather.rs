//! Which memories speak of the same thing: the next ones to look at, what is near them, and how they group.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::rc::Rc;

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::rival::{Claim, Contradiction};
use super::summary::Part;
use crate::db::consolidation::{Member, contested, members, nearest, origins, queue};
use crate::db::recall::size;
use crate::db::{ScopeId, Tx};
use crate::engine::Engine;
use crate::engine::cluster::{Item, cluster, dot};
use crate::engine::models::Model;
use crate::error::{Error, Result};
use crate::model::Tier;
use crate::text;

/// Memories looked at at once. Bounds memory, and how long the lookups keep a connection.
const CHUNK: i64 = 64;
/// Nearest memories of each that may join it; each finds itself too.
const NEAREST: i64 = 9;
/// A fact stands for at most so many memories, so that its summary can hold them.
const MOST_MEMBERS: usize = 20;

/// What was looked at together.
pub(super) struct Chunk {
    /// The memories, in id order.
    pub(super) seeds: Vec<Uuid>,
    /// Those that become facts, each with what fits into one summary.
    pub(super) parts: Vec<Part>,
    /// Those that stay alone and contradict a fact.
    pub(super) lone: Vec<Group>,
}

/// Memories that become one fact.
pub(super) struct Group {
    /// The active fact that they are further evidence of.
    pub(super) fact: Option<Member>,
    /// What that fact was made from.
    pub(super) known: Vec<Member>,
    /// The active memories that come in, oldest first.
    pub(super) fresh: Vec<Member>,
    /// Active memories that cannot hold beside the group's.
    pub(super) rivals: Vec<Rival>,
    /// Further facts near by: they may say the same already.
    pub(super) near_facts: Vec<Member>,
}

/// A memory that contradicts a group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rival {
    pub(super) id: Uuid,
    pub(super) is_fact: bool,
    pub(super) why: Contradiction,
    pub(super) similarity: f32,
    pub(super) happened_at: DateTime<Utc>,
}

impl Group {
    /// All episodic memories, oldest first.
    pub(super) fn members(&self) -> Vec<&Member> {
        let mut all: Vec<&Member> = self.known.iter().chain(&self.fresh).collect();
        all.sort_by_key(|member| (member.happened_at, member.id));
        all
    }

    /// Ids of the active memories that come in.
    pub(super) fn fresh_ids(&self) -> Vec<Uuid> {
        self.fresh.iter().map(|member| member.id).collect()
    }

    /// Whether there is something to bring together.
    pub(super) fn is_whole(&self) -> bool {
        !self.fresh.is_empty() && self.known.len() + self.fresh.len() > 1
    }
}

/// Everything around a chunk.
struct Surroundings {
    items: Vec<Member>,
    place: HashMap<Uuid, usize>,
    /// By place: what was found near it, with the cosine.
    near: Vec<Vec<(usize, f32)>>,
    contested: HashSet<(Uuid, Uuid)>,
}

impl Engine {
    /// The next memories to look at after a place, and the groups that they form with what is near. `taken` is left out, as if
    /// it were a fact's already. `None` where nothing is left.
    pub(super) async fn next_chunk(
        &self,
        scope: ScopeId,
        model: &Model,
        after: Uuid,
        taken: &HashSet<Uuid>,
    ) -> Result<Option<Chunk>> {
        let threshold = model.tuning.cluster_similarity;
        let mut tx = Tx::for_scope(&self.db, scope).await?;
        let seeds = queue(&mut tx, scope, model.space, after, CHUNK).await?;
        if seeds.is_empty() {
            tx.commit().await?;
            return Ok(None);
        }
        let mut items = members(&mut tx, scope, model.space, &seeds).await?;
        items.retain(|item| !item.vector.is_empty() && !taken.contains(&item.id));
        let vectors: Vec<&[f32]> = items.iter().map(|item| item.vector.as_slice()).collect();
        let (size, active) = size(&mut tx, scope).await?;
        self.models.note_active(active);
        let mut near = nearest(&mut tx, scope, model.space, &vectors, size, NEAREST).await?;
        for hits in &mut near {
            hits.retain(|hit| hit.score >= threshold && !taken.contains(&hit.id));
        }
        let known: HashSet<Uuid> = items.iter().map(|item| item.id).collect();
        let others: BTreeSet<Uuid> =
            near.iter().flatten().map(|hit| hit.id).filter(|id| !known.contains(id)).collect();
        let others: Vec<Uuid> = others.into_iter().collect();
        let mut around = members(&mut tx, scope, model.space, &others).await?;
        around.retain(|item| item.is_free && !item.vector.is_empty());
        items.extend(around);
        let ids: Vec<Uuid> = items.iter().map(|item| item.id).collect();
        let pairs = contested(&mut tx, scope, &ids).await?;
        tx.commit().await?;
        let place: HashMap<Uuid, usize> = ids.into_iter().zip(0..).collect();
        let edges = |hits: Vec<crate::db::recall::Hit>| -> Vec<(usize, f32)> {
            hits.into_iter().filter_map(|hit| Some((*place.get(&hit.id)?, hit.score))).collect()
        };
        let mut near: Vec<Vec<(usize, f32)>> = near.into_iter().map(edges).collect();
        near.resize_with(items.len(), Vec::new);
        let contested = pairs.into_iter().flat_map(|(a, b)| [(a, b), (b, a)]).collect();
        let around = Surroundings { items, place, near, contested };
        let (around, clusters) = compute(move || {
            let clusters = clusters_of(&around, threshold);
            (around, clusters)
        })
        .await?;
        let mut originals = self.originals(scope, model, &around, &clusters).await?;
        let (conflict, room) = (model.tuning.thresholds.conflict, self.writer().room());
        let chunk = compute(move || {
            let claims = Claims::default();
            let groups =
                clusters.iter().flat_map(|places| around.groups(places, &mut originals, &claims, conflict));
            let groups: Vec<Group> = groups.collect();
            let lone = around.lone(&seeds, &groups, &claims, conflict);
            let parts = groups.into_iter().flat_map(|group| room.parts(group)).collect();
            Chunk { seeds, parts, lone }
        });
        chunk.await.map(Some)
    }

    /// What the facts of the clusters were made from.
    async fn originals(
        &self,
        scope: ScopeId,
        model: &Model,
        around: &Surroundings,
        clusters: &[Vec<usize>],
    ) -> Result<HashMap<Uuid, Vec<Member>>> {
        let in_clusters = clusters.iter().flatten().map(|at| &around.items[*at]);
        let facts: Vec<Uuid> =
            in_clusters.filter(|item| item.tier == Tier::Semantic).map(|item| item.id).collect();
        let mut of_facts: HashMap<Uuid, Vec<Member>> = HashMap::new();
        if facts.is_empty() {
            return Ok(of_facts);
        }
        let mut tx = Tx::for_scope(&self.db, scope).await?;
        let pairs = origins(&mut tx, scope, &facts).await?;
        let ids: Vec<Uuid> = pairs.iter().map(|(_, origin)| *origin).collect();
        let read = members(&mut tx, scope, model.space, &ids).await?;
        tx.commit().await?;
        let mut read: BTreeMap<Uuid, Member> = read.into_iter().map(|member| (member.id, member)).collect();
        for (fact, origin) in pairs {
            of_facts.entry(fact).or_default().extend(read.remove(&origin));
        }
        Ok(of_facts)
    }
}

/// Computes beside the threads that serve calls: what a chunk takes is long for a call that waits.
async fn compute<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(|error| Error::Internal(error.into()))
}

fn clusters_of(around: &Surroundings, threshold: f32) -> Vec<Vec<usize>> {
    let item = |member: &Member| Item {
        id: member.id,
        vector: member.vector.clone(),
        weight: member.origins.max(1),
        is_fact: member.tier == Tier::Semantic,
    };
    let items: Vec<Item> = around.items.iter().map(item).collect();
    cluster(&items, &around.near, threshold, MOST_MEMBERS)
}

/// What members claim, each read once.
#[derive(Default)]
struct Claims(RefCell<HashMap<Uuid, Rc<[Claim]>>>);

impl Claims {
    /// Why two members cannot both hold, where they cannot.
    fn contradiction(&self, a: &Member, b: &Member) -> Option<Contradiction> {
        let (a, b) = (self.of(a), self.of(b));
        a.iter().flat_map(|a| b.iter().filter_map(|b| a.contradiction(b))).max()
    }

    /// A fact is several statements, each of which may be the one that cannot hold.
    fn of(&self, member: &Member) -> Rc<[Claim]> {
        let read = || match member.tier {
            Tier::Semantic => text::sentences(&member.content).into_iter().map(Claim::of).collect(),
            _ => Rc::new([Claim::of(&member.content)]) as Rc<[Claim]>,
        };
        Rc::clone(self.0.borrow_mut().entry(member.id).or_insert_with(read))
    }
}

impl Surroundings {
    /// The groups of a cluster: of what contradicts each other, each side by itself.
    fn groups(
        &self,
        places: &[usize],
        originals: &mut HashMap<Uuid, Vec<Member>>,
        claims: &Claims,
        conflict: f32,
    ) -> Vec<Group> {
        let mut groups: Vec<Group> = Vec::new();
        let mut fresh: Vec<&Member> = Vec::new();
        for at in places {
            let item = &self.items[*at];
            if item.tier == Tier::Episodic {
                fresh.push(item);
            } else if let Some(known) = originals.remove(&item.id).filter(|known| known.len() == item.origins)
            {
                groups.push(Group { fact: Some(item.clone()), known, ..empty() });
            }
        }
        fresh.sort_by_key(|member| (member.happened_at, member.id));
        for member in fresh {
            match groups.iter_mut().find(|group| self.takes(group, member, claims)) {
                Some(group) => group.fresh.push(member.clone()),
                None => groups.push(Group { fresh: vec![member.clone()], ..empty() }),
            }
        }
        groups.retain(Group::is_whole);
        for group in &mut groups {
            self.look_around(group, places, claims, conflict);
        }
        groups
    }

    fn takes(&self, group: &Group, new: &Member, claims: &Claims) -> bool {
        let is_contested = |other: &Member| self.contested.contains(&(other.id, new.id));
        let members = group.known.iter().chain(&group.fresh);
        !group.fact.iter().any(is_contested)
            && members
                .into_iter()
                .all(|other| !is_contested(other) && claims.contradiction(other, new).is_none())
    }

    /// Finds what contradicts a group, and which facts are near it, among what was seen with its members.
    fn look_around(&self, group: &mut Group, places: &[usize], claims: &Claims, conflict: f32) {
        let of_group: BTreeSet<usize> = group
            .fresh
            .iter()
            .chain(&group.fact)
            .filter_map(|member| self.place.get(&member.id))
            .copied()
            .collect();
        let edges = of_group.iter().flat_map(|at| &self.near[*at]).map(|(other, _)| *other);
        let beside: BTreeSet<usize> =
            places.iter().copied().chain(edges).filter(|at| !of_group.contains(at)).collect();
        for at in beside {
            let other = &self.items[at];
            // It waits for a reviewer already, or is to stay beside the group.
            if group
                .fresh
                .iter()
                .chain(&group.fact)
                .any(|member| self.contested.contains(&(member.id, other.id)))
            {
                continue;
            }
            let is_fact = other.tier == Tier::Semantic;
            let against = group.fresh.iter().filter_map(|member| {
                let similarity = dot(&member.vector, &other.vector);
                if similarity < conflict {
                    return None;
                }
                Some((claims.contradiction(other, member)?, similarity))
            });
            if let Some((why, similarity)) = against.max_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))) {
                let (id, happened_at) = (other.id, other.happened_at);
                group.rivals.push(Rival { id, is_fact, why, similarity, happened_at });
            } else if is_fact {
                group.near_facts.push(other.clone());
            }
        }
    }

    /// The seeds that are in no group and contradict a fact near by.
    fn lone(&self, seeds: &[Uuid], groups: &[Group], claims: &Claims, conflict: f32) -> Vec<Group> {
        let grouped: HashSet<Uuid> =
            groups.iter().flat_map(|group| group.fresh.iter().map(|member| member.id)).collect();
        let alone = seeds.iter().filter(|id| !grouped.contains(*id)).filter_map(|id| self.place.get(id));
        let groups = alone.map(|at| {
            let mut group = Group { fresh: vec![self.items[*at].clone()], ..empty() };
            self.look_around(&mut group, &[], claims, conflict);
            group.rivals.retain(|rival| rival.is_fact);
            group
        });
        groups.filter(|group| !group.rivals.is_empty()).collect()
    }
}

const fn empty() -> Group {
    Group { fact: None, known: Vec::new(), fresh: Vec::new(), rivals: Vec::new(), near_facts: Vec::new() }
}
