// Cross-validations: a job and its folds, over restarts and cancellations.
#include <catch2/catch.hpp>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "coordinator/logic/logic.h"
#include "tests/coordinator/logic/fixtures.h"

namespace ringmaster::coordinator {
namespace {

// What a coordinator left that was killed while it wrote a cross-validation of three folds.
Restored LeftFolds(bool cancelled) {
  Restored left;
  left.term = 1;
  left.jobs = {StoredJob(1, v1::JOB_STATE_RUNNING), StoredJob(2, v1::JOB_STATE_CANCELLED),
               StoredJob(3, v1::JOB_STATE_QUEUED)};
  left.jobs[0].cancel_requested = cancelled;
  left.jobs[0].status.mutable_spec()->mutable_validation()->set_folds(3);
  for (size_t fold : {1, 2}) {
    left.jobs[fold].status.set_fold_of("j0001");
    left.jobs[fold].idempotency_key = fmt::format("fold {} of j0001", fold);
  }
  return left;
}

TEST_CASE(
    "Folds: those that were missing when a coordinator was killed are submitted by the next") {
  Logic logic({});
  std::vector<JobRecord> inserted;
  for (const Action& action : logic.Restore(LeftFolds(false), {})) {
    if (const auto* insert = std::get_if<InsertJob>(&action)) inserted.push_back(insert->record);
  }
  REQUIRE(inserted.size() == 1);
  CHECK(inserted[0].id() == "j0004");
  CHECK(inserted[0].status.fold_of() == "j0001");
  CHECK(inserted[0].status.name() == "test-fold-3");
  CHECK(inserted[0].status.spec().validation().fold() == "3/3");
}

TEST_CASE("Folds: a cancellation that was begun is brought to its end") {
  Logic logic({});
  std::map<std::string, v1::JobState> saved;
  for (const Action& action : logic.Restore(LeftFolds(true), {})) {
    CHECK_FALSE(std::holds_alternative<InsertJob>(action));
    if (const auto* save = std::get_if<SaveJob>(&action)) {
      saved[save->record.id()] = save->record.status.state();
    }
  }
  CHECK(saved["j0003"] == v1::JOB_STATE_CANCELLED);
  CHECK(saved["j0001"] == v1::JOB_STATE_CANCELLED);
}

// Of a job, what these show: `RUNNING: 1 of 3 folds are done`.
std::vector<std::string> Shown(const Actions& actions, const std::string& job_id) {
  std::vector<std::string> shown;
  for (const Action& action : actions) {
    const auto* publish = std::get_if<PublishJob>(&action);
    if (publish == nullptr || publish->view.status.job_id() != job_id) continue;
    const v1::JobStatus& status = publish->view.status;
    shown.push_back(fmt::format("{}: {}", StateName(status.state()), status.reason()));
  }
  return shown;
}

TEST_CASE("Folds: however many change at once, what they are of is shown once behind them") {
  Logic logic({});
  Restored left = LeftFolds(false);
  left.jobs[1].status.set_state(v1::JOB_STATE_QUEUED);
  CHECK(Shown(logic.Restore(left, {}), "j0001") ==
        std::vector<std::string>{"RUNNING: ", "QUEUED: 0 of 3 folds are done"});
  CHECK(
      Shown(logic.Step(CancelAsked{JobId("j0001")}, {}), "j0001") ==
      std::vector<std::string>{"QUEUED: 0 of 3 folds are done", "CANCELLED: cancelled on request"});
}

}  // namespace
}  // namespace ringmaster::coordinator
