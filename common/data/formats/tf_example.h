// TensorFlow's tf.Example as it lies on the wire (tensorflow/core/example/example.proto and
// feature.proto): where the values of one feature are, without copying them. Map entries in any
// order, of one key the last; lists packed or not; unknown fields are skipped. Thread-safe (free
// functions).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/status.h"

namespace ringmaster::data {

struct TfFeature {
  std::string key;
  std::vector<std::span<const uint8_t>> bytes;  // of a list of bytes
  std::vector<int64_t> numbers;                 // of a list of int64
  size_t floats = 0;                            // how many, of a list of float
};

// All features of a serialized Example, which the spans point into, as they come.
// FAILED_PRECONDITION says at which byte it is none.
[[nodiscard]] StatusOr<std::vector<TfFeature>> ParseTfExample(std::span<const uint8_t> example);

// The last one of this key; nullptr: there is none.
[[nodiscard]] const TfFeature* FindFeature(const std::vector<TfFeature>& features,
                                           const std::string& key);

// An Example of an image and its label under these keys, and what else is said under others.
[[nodiscard]] std::string WriteTfExample(
    const std::string& image_key, const std::string& image, const std::string& label_key,
    int64_t label, const std::vector<std::pair<std::string, std::string>>& texts = {});

// A record of a file of the format tfrecord (tfrecord.cc), which reads it without any key named:
// `label` from 0 on, with the name of its class, or nothing.
[[nodiscard]] std::string WriteImageRecord(const std::string& image, int64_t label,
                                           const std::string& class_name = "");

}  // namespace ringmaster::data
