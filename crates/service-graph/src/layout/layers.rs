//! Assigns boxes to layers. Each box is to the right of the boxes with a line to it, and lines are short.

/// Number of rounds in which boxes are moved towards their neighbours.
const ROUNDS: usize = 8;

/// Returns the layer of each box. The lines, given by their ends, must not form a cycle.
pub(super) fn of(count: usize, lines: &[(usize, usize)]) -> Vec<usize> {
    let (mut out, mut into) = (vec![Vec::new(); count], vec![Vec::new(); count]);
    for (from, to) in lines {
        out[*from].push(*to);
        into[*to].push(*from);
    }
    let sorted = sorted(&out, &into);
    let mut layers = vec![0; count];
    for at in &sorted {
        layers[*at] = after(&layers, &into[*at]);
    }
    for _ in 0..ROUNDS {
        let before = layers.clone();
        // A box with more lines to the right is placed as far right as these lines allow, and vice versa.
        for at in sorted
            .iter()
            .rev()
            .filter(|at| out[**at].len() > into[**at].len())
        {
            let nearest = out[*at].iter().map(|to| layers[*to]).min().unwrap_or(1);
            layers[*at] = nearest - 1;
        }
        for at in sorted
            .iter()
            .filter(|at| out[**at].len() < into[**at].len())
        {
            layers[*at] = after(&layers, &into[*at]);
        }
        if layers == before {
            break;
        }
    }
    let first = layers.iter().min().copied().unwrap_or(0);
    layers.iter().map(|layer| layer - first).collect()
}

/// Returns the first layer to the right of all boxes.
fn after(layers: &[usize], boxes: &[usize]) -> usize {
    let layers = boxes.iter().map(|at| layers[*at] + 1);
    layers.max().unwrap_or(0)
}

/// Sorts boxes so that each comes after those with a line to it (Kahn, 1962).
fn sorted(out: &[Vec<usize>], into: &[Vec<usize>]) -> Vec<usize> {
    let mut open: Vec<usize> = into.iter().map(Vec::len).collect();
    let mut sorted: Vec<usize> = (0..open.len()).filter(|at| open[*at] == 0).collect();
    let mut next = 0;
    while let Some(at) = sorted.get(next).copied() {
        next += 1;
        for to in &out[at] {
            open[*to] -= 1;
            if open[*to] == 0 {
                sorted.push(*to);
            }
        }
    }
    sorted
}
