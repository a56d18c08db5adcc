//! Stub of the engine, to be replaced.
#![expect(
    missing_docs,
    clippy::missing_errors_doc,
    clippy::unused_async,
    reason = "stub"
)]

use crate::api::{
    ConsolidateAnswer, ConsolidateArgs, ForgetAnswer, ForgetArgs, ListAnswer, ListArgs, RecallAnswer,
    RecallArgs, StoreAnswer, StoreArgs,
};
use crate::auth::Caller;
use crate::error::{Error, Result};

pub struct Readiness {
    pub postgres: bool,
    pub working: bool,
    pub embedder: bool,
}

#[derive(Default)]
pub struct Engine {
    pub denied: std::sync::Mutex<Vec<String>>,
}

impl Engine {
    pub async fn store(&self, _caller: &Caller, args: StoreArgs) -> Result<StoreAnswer> {
        if args.content == "panic" {
            panic!("boom");
        }
        if args.content == "sleep" {
            tokio::time::sleep(std::time::Duration::from_secs(3600)).await;
        }
        Err(Error::internal("stub: select secret"))
    }
    pub async fn recall(&self, _caller: &Caller, _args: RecallArgs) -> Result<RecallAnswer> {
        Ok(RecallAnswer {
            memories: vec![],
            degraded: vec![],
            left_out: None,
        })
    }
    pub async fn forget(&self, _caller: &Caller, _args: ForgetArgs) -> Result<ForgetAnswer> {
        Err(Error::NotFound)
    }
    pub async fn list(&self, _caller: &Caller, _args: ListArgs) -> Result<ListAnswer> {
        tokio::time::sleep(std::time::Duration::from_secs(4)).await;
        Ok(ListAnswer {
            memories: vec![],
            next_cursor: None,
        })
    }
    pub async fn consolidate(&self, _caller: &Caller, _args: ConsolidateArgs) -> Result<ConsolidateAnswer> {
        Ok(ConsolidateAnswer::default())
    }
    pub async fn readiness(&self) -> Readiness {
        Readiness {
            postgres: true,
            working: false,
            embedder: true,
        }
    }
    pub fn deny(&self, caller: &Caller, action: &str, scope: Option<&str>) {
        self.denied
            .lock()
            .unwrap()
            .push(format!("{} {action} {scope:?}", caller.subject));
    }
}
