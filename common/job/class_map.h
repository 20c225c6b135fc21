// Numerics classes, and which shards of a job each of them computes. Pure; thread-safe (free
// functions).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/job/shards.h"
#include "ringmaster/v1/job.pb.h"

namespace ringmaster::job {

// Two numerics classes are equal when every field is; `Difference` names the first that is not.
[[nodiscard]] std::string Difference(const v1::NumericsClass& a, const v1::NumericsClass& b);
// What people call it: `cpu-avx512_core_bf16-9a31f02c`, the last part of a SHA-256 of all of it.
[[nodiscard]] std::string ClassName(const v1::NumericsClass& numerics);

// Two maps are equal when this is: a class's name is made of all that it is. Their serialized bytes
// need not be, as libraries are in no order there; a manifest has the names alone.
[[nodiscard]] std::string TextOf(const v1::ClassMap& map);
using ClassMaps = google::protobuf::RepeatedPtrField<v1::ClassMap>;
// Of those that begin before a step; of all.
[[nodiscard]] std::string TextOf(const ClassMaps& maps, uint64_t before = UINT64_MAX);
// Whether the same of both led to S(step).
[[nodiscard]] bool LedAlike(const ClassMaps& a, const ClassMaps& b, uint64_t step);

// The newest map of the job, which has one.
[[nodiscard]] const v1::ClassMap& NewestMap(const v1::ResultSpec& result);
// By which of the job's maps S(step) goes on: the last one that begins before it, or with it, when
// what is to be evaluated before is.
[[nodiscard]] int MapOf(const v1::ResultSpec& result, uint64_t step, bool evaluated);
// Of the map, the class that is this one; null: none is.
[[nodiscard]] const v1::MappedClass* FindClass(const v1::ClassMap& map,
                                               const v1::NumericsClass& numerics);
// The shards of the class of that name, which the map has.
[[nodiscard]] Range ShardsOfClass(const v1::ClassMap& map, const std::string& name);

// Of all workers of one class: its cores, and the seconds that one of them takes for a shard.
struct ClassSpeed {
  v1::NumericsClass numerics;
  uint32_t cores = 1;    // >= 1
  double seconds = 1.0;  // > 0
  [[nodiscard]] double shards_per_second() const { return cores / seconds; }
};

// From step 0 on: shards in proportion to speed, by largest remainder, at least one for each class.
// One whose part would be less than a shard is left out, the slowest first: with it each step would
// take longer. Their names come back in `left_out`, ascending; nullptr: none is. `classes` are
// different ones, at least one.
[[nodiscard]] v1::ClassMap MakeClassMap(uint32_t shards, std::vector<ClassSpeed> classes,
                                        std::vector<std::string>* left_out);
// All shards for one class.
[[nodiscard]] v1::ClassMap OneClass(uint32_t shards, const v1::NumericsClass& numerics);

}  // namespace ringmaster::job
