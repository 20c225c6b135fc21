// JobSpec -> ResolvedJob: validation, defaults, steps. Pure; thread-safe (free functions).
#pragma once

#include <string>

#include "common/sha256.h"
#include "common/status.h"
#include "ringmaster/v1/job.pb.h"
#include "ringmaster/v1/script.pb.h"

namespace ringmaster::job {

// Everything about a spec that can be checked without a cluster; INVALID_ARGUMENT names the field,
// what it is and what is allowed. The coordinator calls it at submission, ringctl before sending.
[[nodiscard]] Status Validate(const v1::JobSpec& spec);

// A spec in which nothing is left to a default, and that resolves to the same job: the (rules) of
// job.proto, and what is computed. It checks nothing; what names no model of the zoo keeps its
// model as it is. Of a job of a script what its attach may say stays open (TakeSaid).
[[nodiscard]] v1::JobSpec WithDefaults(v1::JobSpec spec);

// What a job of the spec's kind computes, on such data, before anything is frozen by `freeze`.
[[nodiscard]] StatusOr<v1::Graph> GraphOf(const v1::JobSpec& spec, const v1::DatasetFacts& data);

// `spec` valid, `data` and `numerics_class` as the workers reported them; that class has all shards
// (a job that mixes classes gets its map when they were measured). steps_per_epoch =
// ceil(train_samples / batch); an epoch's last batch may be smaller. `init`: what the source of the
// spec's init was found to be; nullptr: as if everything were drawn.
[[nodiscard]] StatusOr<v1::ResolvedJob> Resolve(const v1::JobSpec& spec,
                                                const v1::DatasetFacts& data,
                                                const v1::NumericsClass& numerics_class,
                                                const v1::InitSourceFacts* init = nullptr);

// Of a job of a script: what the spec leaves out is as its attach has it: batch, shards, length and
// seed. The optimizer stays the script's.
void TakeSaid(const v1::ScriptFacts& facts, v1::JobSpec* spec);

// What both say, and the spec otherwise than attach: it has the last word. `batch 64, not 32; steps
// 5, not 100`; empty: nothing.
[[nodiscard]] std::string Overruled(const v1::ScriptFacts& facts, const v1::JobSpec& spec);

// Of a job of a script: its data are what the script says, and what the spec leaves out is as its
// attach has it. `content`: lower-case hex, of the script and all that goes with it. `init` as
// above. INVALID_ARGUMENT names what neither says.
[[nodiscard]] StatusOr<v1::ResolvedJob> ResolveScript(const v1::JobSpec& spec,
                                                      const v1::ScriptFacts& facts,
                                                      const std::string& content,
                                                      const v1::NumericsClass& numerics_class,
                                                      const v1::InitSourceFacts* init = nullptr);

// min(8, batch) unless the spec says otherwise; and the worker range with defaults. What scheduling
// needs before a job is resolved: a script that has not run may say other shards.
[[nodiscard]] uint32_t ShardsOf(const v1::JobSpec& spec);
[[nodiscard]] v1::WorkerRange WorkersOf(const v1::JobSpec& spec);

// What the tensors of the job's state take, in bytes: an upper bound, as every optimizer's slots
// are counted whether it has them or not. A checkpoint has little more.
[[nodiscard]] uint64_t StateBytes(const v1::ResultSpec& result);

// Canonical JSON of the result-determining part: sorted keys, no spaces, every field, and of class
// maps the first one alone; and its SHA-256, which stands in manifests and starts the digest chain.
[[nodiscard]] std::string CanonicalJson(const v1::ResultSpec& result);
[[nodiscard]] Sha256Digest ResultDigest(const v1::ResultSpec& result);
// Likewise of what S(k) is a function of, for every k: without the number of steps, unless the
// learning rate follows it. A job that goes on to more steps has the states of the longer job.
[[nodiscard]] Sha256Digest StatesDigest(const v1::ResultSpec& result);
// Likewise of the graph alone: models are equal when these are.
[[nodiscard]] std::string CanonicalJson(const v1::Graph& graph);
[[nodiscard]] Sha256Digest ModelDigest(const v1::Graph& graph);
// M of digest(step + 1): of the class maps that begin at `step`, but for the first; zeros where
// none does.
[[nodiscard]] Sha256Digest MapsDigest(const v1::ResultSpec& result, uint64_t step);

}  // namespace ringmaster::job
