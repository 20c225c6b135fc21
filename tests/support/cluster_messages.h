// Messages of a small cluster, valid as they are: a worker that attaches, a dataset, a job. Tests
// change the fields that they are about.
#pragma once

#include <sstream>
#include <string>

#include "common/ids.h"
#include "ringmaster/v1/fleet.pb.h"
#include "ringmaster/v1/job.pb.h"
#include "tests/support/image_data.h"
#include "tests/support/model_option.h"

namespace ringmaster::testing {

// 32 hex digits that differ for different texts.
inline std::string MakeIncarnation(const std::string& text) {
  std::string digits(32, '0');
  for (size_t i = 0; i < text.size() && i < 16; ++i) {
    constexpr char kHex[] = "0123456789abcdef";
    digits[2 * i] = kHex[(static_cast<unsigned char>(text[i]) >> 4) & 15];
    digits[2 * i + 1] = kHex[static_cast<unsigned char>(text[i]) & 15];
  }
  return digits;
}

inline v1::Attach MakeAttach(const std::string& name) {
  v1::Attach attach;
  attach.set_protocol(kProtocolVersion);
  attach.set_name(name);
  attach.set_incarnation(MakeIncarnation(name));
  attach.set_ring_address("127.0.0.1:9000");
  attach.set_cores(1);
  attach.mutable_numerics_class()->set_backend("cpu");
  attach.mutable_numerics_class()->set_device_model("Test CPU");
  attach.mutable_numerics_class()->set_instruction_set("avx2");
  attach.mutable_numerics_class()->set_threads_per_core(1);
  attach.mutable_device_profile()->set_kind("cpu");
  attach.mutable_device_profile()->set_memory_per_core(uint64_t{1} << 30);
  return attach;
}

// `4:d4,6:other`: the digests of steps 4 and 6, as a report carries them.
template <typename Report>
void AddDigests(const std::string& text, Report* report) {
  std::stringstream list(text);
  for (std::string each; std::getline(list, each, ',');) {
    v1::StepDigest& digest = *report->add_digests();
    digest.set_step(std::stoull(each));
    digest.set_digest(each.substr(each.find(':') + 1));
  }
}

// 80 training and 20 test images in CIFAR-10's shape.
inline v1::DatasetFacts MakeFacts() {
  v1::DatasetFacts facts;
  facts.set_format("cifar10");
  for (const auto& [name, samples] : {std::pair("data_batch_1.bin", 80), {"test_batch.bin", 20}}) {
    v1::DataFile& file = *facts.add_files();
    file.set_name(name);
    file.set_samples(samples);
    file.set_bytes(samples * 3073);
    file.set_sha256(std::string(64, 'a'));
  }
  facts.set_train_samples(80);
  facts.set_test_samples(20);
  SetImages(32, 32, 3, 10, &facts);
  return facts;
}

// Ten steps of a small network in four shards, checkpoints as the defaults have it.
inline v1::JobSpec MakeSpec() {
  v1::JobSpec spec;
  spec.set_name("test");
  spec.mutable_model()->set_name("mlp");
  testing::SetHidden({8}, spec.mutable_model());
  spec.mutable_data()->set_format("cifar10");
  spec.mutable_data()->set_path("data");
  spec.set_batch(8);
  spec.set_shards(4);
  spec.set_steps(10);
  spec.mutable_optimizer()->mutable_sgd()->set_learning_rate(0.1);
  return spec;
}

}  // namespace ringmaster::testing
