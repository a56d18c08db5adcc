//! Redis: whether it answers, and whether it keeps what it is given.

use secrecy::{ExposeSecret, SecretString};
use uuid::Uuid;

use super::{Finding, failure, warning, well};
use crate::error::{Error, with_causes};
use crate::working::{DEFAULT_CAP, Facts, Working};

pub(super) async fn examine(url: &SecretString) -> Vec<Finding> {
    let facts = async {
        // Whose keys it would name is no matter where none is.
        match Working::redis(url.expose_secret(), Uuid::nil(), DEFAULT_CAP)? {
            Working::Redis(redis) => redis.facts().await.map(Some),
            Working::Postgres(_) => Ok(None),
        }
    };
    match facts.await {
        Ok(facts) => facts.as_ref().map(judge).unwrap_or_default(),
        Err(Error::Invalid { message, hint, .. }) => vec![failure(format!("Redis: {message}. {hint}"))],
        Err(error) => vec![failure(format!(
            "Redis: {}; is it up, does REDIS_URL lead to it, and is the password right?",
            with_causes(&error)
        ))],
    }
}

fn judge(facts: &Facts) -> Vec<Finding> {
    let mut findings = vec![well(format!("Redis: version {} answers", facts.version))];
    findings.push(if facts.max_memory > 0 && facts.policy != "noeviction" {
        warning(format!(
            "Redis: with maxmemory-policy {} a full one drops working memories before their time: set it to noeviction, \
             which refuses instead",
            facts.policy
        ))
    } else {
        well("Redis: it drops nothing before its time".to_owned())
    });
    findings.push(match (facts.append_only, facts.snapshots) {
        (true, _) => well("Redis: it writes down each change (appendonly)".to_owned()),
        (false, Some(true)) => warning(
            "Redis: it saves only now and then, so that a crash loses the working memories since: set appendonly yes"
                .to_owned(),
        ),
        (false, Some(false)) => warning(
            "Redis: it writes nothing to a disk, so that a restart loses all working memories: set appendonly yes"
                .to_owned(),
        ),
        (false, None) => warning(
            "Redis: appendonly is off, and whether it saves at all it does not say: a restart may lose working memories"
                .to_owned(),
        ),
    });
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Health;

    #[test]
    fn what_redis_may_lose_is_warned_of() {
        let safe = Facts {
            version: "7.2.4".to_owned(),
            max_memory: 1 << 30,
            policy: "noeviction".to_owned(),
            append_only: true,
            snapshots: Some(false),
        };
        let warnings = |facts: &Facts| {
            let found = judge(facts).into_iter().filter(|finding| finding.health == Health::Warning);
            found.map(|finding| finding.text).collect::<Vec<_>>().join("\n")
        };
        assert_eq!(warnings(&safe), "");
        let evicting = Facts { policy: "allkeys-lru".to_owned(), ..safe.clone() };
        assert!(warnings(&evicting).contains("allkeys-lru") && warnings(&evicting).contains("noeviction"));
        assert_eq!(warnings(&Facts { max_memory: 0, ..evicting }), "", "what is never full drops nothing");
        let unwritten = |snapshots| warnings(&Facts { append_only: false, snapshots, ..safe.clone() });
        assert!(unwritten(Some(true)).contains("now and then"));
        assert!(unwritten(Some(false)).contains("writes nothing"));
        assert!(unwritten(None).contains("does not say"));
    }
}
