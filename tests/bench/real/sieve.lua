-- Loops over numbers, tables and strings: what a tracing JIT compiles, and what it leaves to its interpreter.
local bit = require("bit")

local function primes(limit)
    local composite, count = {}, 0
    for i = 2, limit do
        if not composite[i] then
            count = count + 1
            for j = i * i, limit, i do
                composite[j] = true
            end
        end
    end
    return count
end

local function julia(size, rounds)
    local inside = 0
    for row = 0, size - 1 do
        for column = 0, size - 1 do
            local x, y, n = 3 * column / size - 1.5, 3 * row / size - 1.5, 0
            while n < rounds and x * x + y * y < 4 do
                x, y = x * x - y * y - 0.7, 2 * x * y + 0.27
                n = n + 1
            end
            inside = inside + n
        end
    end
    return inside
end

local function sorted(count)
    local list, state, sum = {}, 42, 0
    for i = 1, count do
        state = bit.bxor(state, bit.lshift(state, 13))
        state = bit.bxor(state, bit.rshift(state, 17))
        state = bit.bxor(state, bit.lshift(state, 5))
        list[i] = state
    end
    table.sort(list)
    for i = 1, count, 7 do
        sum = (sum * 31 + list[i]) % 1000003
    end
    return sum
end

local function words(count)
    local seen, parts = {}, {}
    for i = 1, count do
        local word = string.format("%x-%d", i * 2654435761 % 4096, i % 97)
        seen[word] = (seen[word] or 0) + 1
        parts[#parts + 1] = word:upper():reverse():sub(1, 5)
    end
    local kinds = 0
    for _ in pairs(seen) do
        kinds = kinds + 1
    end
    local text = table.concat(parts, " ")
    local _, found = text:gsub("%d%-(%x)", "%1")
    return kinds, #text, found
end

print(primes(6000000))
print(julia(700, 300))
print(sorted(500000))
print(words(500000))
