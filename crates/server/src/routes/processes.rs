//! Who works on the store.

use axum::extract::State;

use crate::api::Api;
use crate::extract::Answer;
use crate::wire::Problem;
use crate::wire::process::Processes;

pub(super) async fn list(State(api): State<Api>) -> Result<Answer<Processes>, Problem> {
    let processes = api.store().processes().await?.into_iter().map(Into::into).collect();
    Ok(Answer(Processes { processes }))
}
