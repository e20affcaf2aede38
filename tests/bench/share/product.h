#pragma once
// The product as a user has it: `tensor-fusion run` for every tenant, and the hypervisor that the first one starts.
#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/bench/share/mix.h"

namespace tensor_fusion::bench::share {

class Product {
 public:
  using Variables = std::vector<std::pair<std::string, std::string>>;

  // `program`: the path of tensor-fusion. `state`: an empty folder's path for this hypervisor alone.
  Product(std::string program, std::string state, Variables environment);
  ~Product();  // stops the hypervisor, and is done when it has ended: the next gives out the same cards
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;

  // A slice for the part, with this command line in it. The id is that of the program in the slice; -1: no fork.
  pid_t run(const Part& part, const std::string& name, const std::vector<std::string>& command) const;

 private:
  pid_t start(const std::vector<std::string>& command) const;

  std::string program_, state_;
  Variables environment_;
};

}  // namespace tensor_fusion::bench::share
