#include "coordinator/logic/run/failure.h"

#include <catch2/catch.hpp>
#include <set>

namespace ringmaster::coordinator {
namespace {

TEST_CASE("Failure: every cause has a word of its own and an advice with everything filled in") {
  std::set<std::string> words;
  for (int cause = static_cast<int>(Cause::kWorkerFailed);
       cause <= static_cast<int>(Cause::kNoCheckpoint); ++cause) {
    const Fault fault{static_cast<Cause>(cause), "reason", "w2", 7};
    const v1::Failure failure = MakeFailure(fault, {"j0007", "node-b", "compute", 8, 4});
    INFO(failure.word());
    CHECK_FALSE(failure.word().empty());
    CHECK(words.insert(failure.word()).second);
    CHECK(failure.worker() == "w2");
    CHECK(failure.host() == "node-b");
    CHECK(failure.phase() == "compute");
    CHECK(failure.step() == 8);
    CHECK(failure.advice().find_first_of("{}") == std::string::npos);
  }
  CHECK(words.size() == 12);
}

TEST_CASE("Failure: what a checkpoint has is not computed again") {
  const auto advice = [](Cause cause, uint64_t kept_step) {
    return MakeFailure({cause, "reason", "w2", 7}, {"j0007", "node-b", "compute", 8, kept_step})
        .advice();
  };
  for (const Cause cause :
       {Cause::kWorkerFailed, Cause::kDataset, Cause::kMemory, Cause::kStateDiffers,
        Cause::kProtocolViolation, Cause::kCheckpointDiffers, Cause::kKnownShardDiffers}) {
    CHECK_THAT(advice(cause, 4),
               Catch::Contains("then `ringctl submit --resume j0007` goes on from step 4"));
    CHECK_THAT(advice(cause, 0), Catch::Contains("then submit the job again"));
  }
  // The same steps would end in the same way.
  CHECK(advice(Cause::kNotFinite, 4) ==
        "Take a smaller learning rate, or look at the data of that step, and submit the job with "
        "`--set continue=j0007`, which goes on from a checkpoint of it (up to step 4), or again "
        "from its first step.");
  CHECK_THAT(advice(Cause::kNotFinite, 0), Catch::EndsWith("and submit the job again."));
}

TEST_CASE("Failure: without a host, a worker or a checkpoint the advice still reads") {
  const v1::Failure failure = MakeFailure({Cause::kDataset, "reason", ""}, {"j0007"});
  CHECK(failure.advice() ==
        "Repair the dataset under the data root of the worker on its host as the reason says, then "
        "submit the job again.");
  CHECK(Called("w2", "") == "worker w2");
  CHECK(At(3, "") == "at step 3");
}

// As worker/train, worker/backend and the dataset say it.
TEST_CASE("Failure: a worker's own words are known by their phrases") {
  CHECK(CauseOfError("step 7: the gradient of conv1/kernel of shard 3 is not finite (NaN or "
                     "infinity); nothing of this step was applied.") == Cause::kNotFinite);
  CHECK(CauseOfError("step 7: loss of shard 3 is too large to be summed exactly; nothing of this "
                     "step was applied.") == Cause::kNotFinite);
  CHECK(CauseOfError("Used 9.31G of 8.00G memory per core (exceeded by 1.31G): arena 9.00G") ==
        Cause::kMemory);
  CHECK(CauseOfError("Used 9.31G of 8.00G memory for the state on all cores: parameters 3G") ==
        Cause::kMemory);
  CHECK(CauseOfError("conv1: oneDNN is out of memory") == Cause::kMemory);
  CHECK(CauseOfError("cannot get 123 bytes for a core: Cannot allocate memory") == Cause::kMemory);
  CHECK(CauseOfError("a core needs 123 bytes, and 100 are reserved for it") == Cause::kMemory);
  CHECK(CauseOfError("train.bin: the file changed while it was in use, so it is not the one that "
                     "was compared with the other workers'") == Cause::kDataset);
  CHECK(CauseOfError("train.bin record 7: Input/output error") == Cause::kDataset);
  CHECK(CauseOfError("the step loop stopped by itself") == Cause::kWorkerFailed);
}

}  // namespace
}  // namespace ringmaster::coordinator
